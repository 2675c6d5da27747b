"""A Loop over tokens whose body updates a state and writes one result a token."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import openvino
from openvino import opset13

from graphpass.ir.writer import Handle


class TokenBody(Protocol):
    """The body of a Loop over tokens.

    Attributes:
        model: The body; its first parameter is the index of the token, its first result the condition to continue.
        tokens: Parameters for one token of each operand.
        state: Parameter for the state.
        results: Parameter for the results of all tokens.
        new_state: Result with the next state.
        new_results: Result with the results, in which that of the token is written.
    """

    model: openvino.Model
    tokens: Sequence[openvino.Node]
    state: openvino.Node
    results: openvino.Node
    new_state: openvino.Node
    new_results: openvino.Node


def loop_over_tokens(
    name: str,
    count: openvino.Node,
    body: TokenBody,
    operands: Sequence[Handle],
    state: Handle,
    results: Handle,
    axis: int,
) -> tuple[Handle, Handle]:
    """Write a Loop over tokens.

    Args:
        name: Name of the Loop.
        count: Number of tokens, i32.
        body: The body.
        operands: Tensors of which the body reads one token, in the order of its parameters.
        state: The state before the first token.
        results: Zeros in the shape of the results.
        axis: Axis of the tokens in the operands.

    Returns:
        The results of all tokens, and the state after the last.
    """
    loop = opset13.loop(count, opset13.constant(True, dtype=openvino.Type.boolean))
    loop.set_friendly_name(name)
    loop.set_function(body.model)
    loop.set_special_body_ports([0, 0])
    for parameter, source in zip(body.tokens, operands, strict=True):
        loop.set_sliced_input(parameter, source, 0, 1, 1, -1, axis)
    loop.set_merged_input(body.state, state, body.new_state.output(0))
    loop.set_merged_input(body.results, results, body.new_results.output(0))
    output = loop.get_iter_value(body.new_results.output(0), -1)
    return output, loop.get_iter_value(body.new_state.output(0), -1)
