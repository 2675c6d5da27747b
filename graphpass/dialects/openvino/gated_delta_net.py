"""Write a gated delta net as a Loop that OpenVINO replaces by one operator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import openvino
from openvino import opset1, opset13

from graphpass.dialects.openvino.token_loop import loop_over_tokens
from graphpass.ir.writer import Handle

_TOKENS = 2


@dataclass(frozen=True)
class GatedDeltaNet:
    """Operands of the Loop that ``FuseGDNLoop`` matches (``fuse_gated_delta_net.cpp`` of openvino 2026.4.1).

    ``FuseGDNLoop`` does not match a gate per row of the state; then the Loop is kept.

    Attributes:
        query: ``[batch, heads, tokens, key_dim]``, divided by the square root of key_dim, as the matcher requires.
        key: ``[batch, heads, tokens, key_dim]``.
        value: ``[batch, heads, tokens, value_dim]``.
        gate: Logarithm of the decay, ``[batch, heads, tokens]``, or ``[batch, heads, tokens, key_dim]``.
        beta: ``[batch, heads, tokens]``.
        state: ``[batch, heads, key_dim, value_dim]``.
    """

    query: Handle
    key: Handle
    value: Handle
    gate: Handle
    beta: Handle
    state: Handle

    def write(self, name: str) -> tuple[Handle, Handle]:
        """Write the Loop, named ``name``.

        Returns:
            The results, ``[batch, heads, tokens, value_dim]``, and the last state.
        """
        sizes = opset13.shape_of(self.key, "i64")
        tokens = opset13.gather(sizes, _number(_TOKENS), _number(0))
        value_dim = self.state.get_partial_shape()[-1].get_length()
        first = opset13.gather(sizes, opset13.constant([0, 1, _TOKENS], dtype=openvino.Type.i64), _number(0))
        shape = opset13.concat([first, opset13.constant([value_dim], dtype=openvino.Type.i64)], 0)
        results = opset13.broadcast(opset13.constant(0.0, dtype=self.value.get_element_type()), shape)
        count = opset13.convert(tokens, "i32")
        made = {"sizes": sizes, "tokens": tokens, "first": first, "shape": shape, "results": results, "count": count}
        for label, node in made.items():
            node.set_friendly_name(f"{name}/{label}")
        operands = (self.query, self.key, self.value, self.gate, self.beta)
        return loop_over_tokens(name, count, _Body(self), operands, self.state, results.output(0), _TOKENS)


class _Body:
    """The body of the Loop, which processes one token."""

    def __init__(self, net: GatedDeltaNet) -> None:
        _, heads, key_dim, value_dim = net.state.get_partial_shape()
        kind = net.state.get_element_type()

        def parameter(*sizes: openvino.Dimension | int) -> openvino.Node:
            return opset13.parameter(openvino.PartialShape([openvino.Dimension.dynamic(), *sizes]), kind)

        index = opset13.parameter(openvino.PartialShape([]), openvino.Type.i32)
        query, key = parameter(heads, 1, key_dim), parameter(heads, 1, key_dim)
        by_row = net.gate.get_partial_shape().rank.get_length() > _TOKENS + 1
        gate = parameter(heads, 1, key_dim) if by_row else parameter(heads, 1)
        value, beta = parameter(heads, 1, value_dim), parameter(heads, 1)
        self.tokens: Sequence[openvino.Node] = (query, key, value, gate, beta)
        self.state = parameter(heads, key_dim, value_dim)
        self.results = parameter(heads, openvino.Dimension.dynamic(), value_dim)

        # The matcher compares versions of operators and requires Squeeze of opset 1.
        column = opset13.unsqueeze(opset1.squeeze(key, _number(_TOKENS)), _number(-1))
        log = opset1.squeeze(gate, _number(_TOKENS)) if by_row else gate
        decay = opset13.unsqueeze(opset13.exp(log), _number(-1))
        decayed = opset13.multiply(self.state, decay)
        recalled = opset13.reduce_sum(opset13.multiply(decayed, column), _number(-2), keep_dims=False)
        correction = opset13.subtract(opset1.squeeze(value, _number(_TOKENS)), recalled)
        row = opset13.unsqueeze(opset13.multiply(correction, beta), _number(-2))
        state = opset13.add(decayed, opset13.multiply(column, row))
        queried = opset13.unsqueeze(opset1.squeeze(query, _number(_TOKENS)), _number(-1))
        result = opset13.reduce_sum(opset13.multiply(state, queried), _number(-2), keep_dims=True)
        at = opset13.unsqueeze(index, _number(0))
        filled = opset13.scatter_update(self.results, at, result, _number(_TOKENS))

        goes_on = opset13.result(opset13.constant([True], dtype=openvino.Type.boolean))
        self.new_state, self.new_results = opset13.result(state), opset13.result(filled)
        parameters = [index, *self.tokens, self.state, self.results]
        self.model = openvino.Model([goes_on, self.new_state, self.new_results], parameters, "token")


def _number(value: int) -> openvino.Node:
    return opset13.constant(value, dtype=openvino.Type.i32)
