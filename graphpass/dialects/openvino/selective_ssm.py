"""Write Mamba-2 as a Loop that OpenVINO replaces by one operator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import openvino
from openvino import opset1, opset3, opset8

from graphpass.dialects.openvino.token_loop import loop_over_tokens
from graphpass.ir.writer import Handle

_TOKENS = 1


@dataclass(frozen=True)
class SelectiveSSM:
    """Operands of the Loop that ``FuseSelectiveSSMLoop`` matches (``fuse_selective_ssm.cpp`` of openvino 2026.4.1).

    Attributes:
        rate: Logarithm of the decay for a time step of 1, ``[heads]``.
        step: Time step, ``[batch, tokens, heads]``.
        key: ``[batch, tokens, heads, key_dim]``.
        value: ``[batch, tokens, heads, value_dim]``.
        query: ``[batch, tokens, heads, key_dim]``.
        state: ``[batch, heads, value_dim, key_dim]``.
    """

    rate: Handle
    step: Handle
    key: Handle
    value: Handle
    query: Handle
    state: Handle

    def write(self, name: str) -> tuple[Handle, Handle]:
        """Write the Loop, named ``name``.

        Returns:
            The results, ``[batch, tokens, heads, value_dim]``, and the last state.
        """
        decay = opset1.exp(opset1.multiply(self.rate, self.step))
        stepped = opset1.multiply(opset1.unsqueeze(self.step, _number(-1)), self._copied(self.key))
        products = (opset1.unsqueeze(stepped, _number(-2)), opset1.unsqueeze(self.value, _number(-1)))
        shape = opset3.shape_of(self.value, "i64")
        results = opset3.broadcast(opset1.constant(0.0, dtype=openvino.Type.f32), shape)
        sliced = (
            opset1.reshape(decay, _numbers(0, 0, 0, 1, 1), True),
            opset1.multiply(*products),
            opset1.unsqueeze(self._copied(self.query), _number(-2)),
        )
        count = opset1.convert(opset8.gather(shape, _number(_TOKENS), _number(0)), "i32")
        operands = [node.output(0) for node in sliced]
        return loop_over_tokens(name, count, _Body(self), operands, self.state, results.output(0), _TOKENS)

    def _copied(self, tensor: Handle) -> openvino.Node:
        """Return groups of heads repeated once, by the operators that the matcher requires."""
        heads, key_dim = (size.get_length() for size in tensor.get_partial_shape()[2:])
        copies = opset1.tile(opset1.unsqueeze(tensor, _number(3)), _numbers(1, 1, 1, 1, 1))
        return opset1.reshape(copies, _numbers(0, 0, heads, key_dim), True)


class _Body:
    """The body of the Loop, which processes one token."""

    def __init__(self, ssm: SelectiveSSM) -> None:
        _, heads, value_dim, key_dim = ssm.state.get_partial_shape()
        kind = ssm.state.get_element_type()

        def parameter(*sizes: openvino.Dimension | int) -> openvino.Node:
            return opset1.parameter(openvino.PartialShape([openvino.Dimension.dynamic(), *sizes]), kind)

        index = opset1.parameter(openvino.PartialShape([]), openvino.Type.i32)
        self.tokens: Sequence[openvino.Node] = (
            parameter(1, heads, 1, 1),
            parameter(1, heads, value_dim, key_dim),
            parameter(1, heads, 1, key_dim),
        )
        self.state = parameter(heads, value_dim, key_dim)
        self.results = parameter(openvino.Dimension.dynamic(), heads, value_dim)
        decay, product, query = (opset1.squeeze(token, _number(_TOKENS)) for token in self.tokens)
        state = opset1.add(opset1.multiply(self.state, decay), product)
        row = opset1.reduce_sum(opset1.multiply(state, query), _number(-1), keep_dims=False)
        at = opset1.unsqueeze(index, _number(0))
        filled = opset3.scatter_update(self.results, at, opset1.unsqueeze(row, _number(_TOKENS)), _number(_TOKENS))

        goes_on = opset1.result(opset1.constant([True], dtype=openvino.Type.boolean))
        self.new_state, self.new_results = opset1.result(state), opset1.result(filled)
        parameters = [index, *self.tokens, self.state, self.results]
        self.model = openvino.Model([goes_on, self.new_state, self.new_results], parameters, "token")


def _number(value: int) -> openvino.Node:
    return opset1.constant(value, dtype=openvino.Type.i32)


def _numbers(*values: int) -> openvino.Node:
    return opset1.constant([*values], dtype=openvino.Type.i64)
