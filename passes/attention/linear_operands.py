"""Write the operands of linear attention operators from the tensors of a loop or chunk."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy

from graphpass.analysis.equations.linear_equation import LinearAttention, Role
from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.miss import Miss
from graphpass.ir.model import Model
from graphpass.ir.rewriter import Rewriter
from graphpass.ir.writer import Handle

#: Transposes the key and value axes of a state.
_SWAP = [0, 1, 3, 2]


def rewrite_layers(
    model: Model,
    recurrences: Mapping[str, LinearAttention | Miss],
    write: Callable[[LinearOperands], None],
    why_not: Callable[[LinearAttention], str | None] = lambda _recurrence: None,
) -> tuple[int, tuple[str, ...]]:
    """Rewrite loops and chunks that compute linear attention.

    Args:
        model: The model.
        recurrences: Loops and chunks by name.
        write: Function that replaces the results of a loop or chunk.
        why_not: Function that returns why a recurrence is not rewritten, or ``None``.

    Returns:
        The number of rewritten loops and chunks, and a note on each of the others.
    """
    reasons = {name: str(each) if isinstance(each, Miss) else why_not(each) for name, each in recurrences.items()}
    layers = {
        name: each for name, each in recurrences.items() if isinstance(each, LinearAttention) and reasons[name] is None
    }
    if layers:
        rewriter = model.rewriter()
        values = {value.name: value for node in model.graph.nodes if node.op != "Result" for value in node.outputs}
        for name, recurrence in layers.items():
            write(LinearOperands(rewriter, values, name.partition(" ")[2], recurrence))
        rewriter.finish()
    return len(layers), tuple(f"{name} stays unchanged: {reason}" for name, reason in reasons.items() if reason)


class LinearOperands:
    """Writes the operands of one loop, with batch and tokens as leading axes.

    Values of the analysis belong to the graph with inlined bodies, and are mapped to the model's values by name.
    """

    def __init__(self, rewriter: Rewriter, values: dict[str, Value], name: str, recurrence: LinearAttention) -> None:
        """Bind the operands of a loop ``name`` to the model's values by name."""
        self.recurrence, self.loop, self.write = recurrence, name, rewriter.under(name)
        self._rewriter, self._values = rewriter, values

    @property
    def graph(self) -> Graph:
        """Return the graph of the model."""
        return self._rewriter.graph

    def source(self, role: Role) -> Value:
        """Return the model's value for a role."""
        return self._values[role.source.name]

    def bypass(self, node: Node) -> None:
        """Redirect users of ``node``, and this loop, to its input."""
        self._values = self._values | {node.outputs[0].name: node.source()}
        self._rewriter.redirect_uses(node.outputs[0], self._rewriter.handle(node.source()))

    def query(self) -> Handle:
        """Return the query, ``[batch, tokens, heads * groups * key_dim]``."""
        return self._packed(self.recurrence.query)

    def key(self) -> Handle:
        """Return the key, ``[batch, tokens, heads * key_dim]``."""
        return self._packed(self.recurrence.key)

    def past(self) -> Handle:
        """Return the past state, ``[batch, heads, key_dim, value_dim]``."""
        return self._swapped(self.stored())

    def stored(self) -> Handle:
        """Return the past state in the axes of the cache."""
        return self._rewriter.handle(self._values[self.recurrence.past.name])

    def value(self) -> Handle:
        """Return the value, ``[batch, tokens, heads * value_dim]``."""
        write, recurrence, value = self.write, self.recurrence, self._packed(self.recurrence.value)
        for scale in recurrence.scales:
            if scale.numbers:
                factor = write.constant(numpy.array(scale.numbers, numpy.float32).reshape(-1, 1))
            else:
                factor = write.op("Unsqueeze", self._packed(scale), axes=[3])
            value = write.op(
                "Multiply", write.op("Reshape", value, [0, 0, recurrence.heads, recurrence.value_dim]), factor
            )
            value = write.op("Reshape", value, [0, 0, recurrence.heads * recurrence.value_dim])
        return value

    def log_decay(self, decay: Role, key: Handle) -> Handle:
        """Return the logarithm of the decay, ``[batch, tokens, heads]`` or ``[batch, tokens, heads * key_dim]``.

        Args:
            decay: The factor of the state.
            key: A tensor of all tokens.
        """
        if decay.numbers:
            return self.constant([math.log(number) for number in decay.numbers], key)
        if decay.functions[-1:] == ("Exp",):
            log = self._packed(decay, decay.functions[:-1])
        else:
            log = self.write.op("Log", self._packed(decay))
        return log if decay.width else self.for_heads(log)

    def beta(self, key: Handle) -> Handle:
        """Return beta, ``[batch, tokens, heads or 1]``; ``key`` is a tensor of all tokens."""
        betas = self.recurrence.betas
        factors = [self._packed(beta) for beta in betas if not beta.numbers]
        numbers = numpy.ones(1)
        for beta in betas:
            numbers = numbers * (beta.numbers or 1.0)
        if not factors:
            return self.constant(numbers, key)
        if numbers.size > 1 or numbers[0] != 1.0:
            factors.append(self.write.constant(numbers.astype(numpy.float32)))
        product = factors[0]
        for factor in factors[1:]:
            product = self.write.op("Multiply", product, factor)
        return product

    def constant(self, numbers: Any, key: Handle) -> Handle:
        """Write numbers for each token and head.

        Args:
            numbers: One number, or one for each head; written in f32.
            key: A tensor ``[batch, tokens, ...]``.

        Returns:
            f32 ``[batch, tokens, heads]``.
        """
        write, heads = self.write, self.recurrence.heads
        array = numpy.broadcast_to(numpy.array(numbers, numpy.float32), [heads])
        shape = write.op("Concat", write.size(key, 0), write.size(key, 1), [heads], axis=0)
        return write.op("Broadcast", write.constant(numpy.ascontiguousarray(array)), shape)

    def for_heads(self, number: Handle) -> Handle:
        """Broadcast a number of each token, ``[batch, tokens, 1]``, to all heads.

        Returns:
            ``[batch, tokens, heads]``, in the type of ``number``.
        """
        return self.write.op("Broadcast", number, [1, 1, self.recurrence.heads], mode="bidirectional")

    def replace(self, output: Handle, present: Handle, *, is_stored: bool = False) -> None:
        """Replace the results of the loop.

        Args:
            output: ``[batch, tokens, heads * groups * value_dim]``.
            present: ``[batch, heads, key_dim, value_dim]``.
            is_stored: Whether ``present`` has the axes of the cache instead.
        """
        self._rewriter.replace(self._values[self.recurrence.output.name], self._with_skip(self._laid_out(output)))
        present = present if is_stored else self._swapped(present)
        self._rewriter.replace(self._values[self.recurrence.present.name], present)

    def _swapped(self, state: Any) -> Any:
        return self.write.op("Transpose", state, order=_SWAP) if self.recurrence.transposed else state

    def _packed(self, role: Role, functions: Sequence[str] | None = None) -> Handle:
        """Return the tensor of a role as ``[batch, tokens, heads * width]``."""
        made: Handle = self._rewriter.handle(self.source(role))
        for name in role.functions if functions is None else functions:
            made = self.write.op(name, made)
        if role.order != tuple(range(len(role.order))):
            made = self.write.op("Transpose", made, order=list(role.order))
        if len(role.order) == 3:
            return made
        return self.write.op("Reshape", made, [0, 0, role.width * self.recurrence.heads or 1])

    def _with_skip(self, output: Handle) -> Handle:
        skip, write = self.recurrence.skip, self.write
        if skip is None:
            return output
        factors = (self._rewriter.handle(self._values[value.name]) for value in (skip.source, skip.factor))
        product = write.op("Reshape", write.op("Multiply", *factors), list(self.recurrence.shape))
        return write.op("Add", output, product)

    def _laid_out(self, output: Handle) -> Handle:
        recurrence, write = self.recurrence, self.write
        heads = [recurrence.heads, recurrence.groups, recurrence.value_dim]
        if recurrence.order == (0, 1, 2, 3, 4):
            return output if len(recurrence.shape) == 3 else write.op("Reshape", output, list(recurrence.shape))
        made = write.op("Transpose", write.op("Reshape", output, [0, 0, *heads]), order=list(recurrence.order))
        return write.op("Reshape", made, list(recurrence.shape))
