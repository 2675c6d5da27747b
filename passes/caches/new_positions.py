"""Compute values for only the new positions of a step; see the pass `expand-latents`."""

from __future__ import annotations

from collections.abc import Mapping

from graphpass.analysis.caches.masks import find_step_lengths
from graphpass.analysis.caches.step_lengths import Length
from graphpass.analysis.symbolic.equal_sizes import Vector, dimensions
from graphpass.analysis.symbolic.expressions import ZERO, Expr, substitute
from graphpass.analysis.symbolic.sizes import infer_sizes
from graphpass.ir.graph import Node, Use, Value
from graphpass.ir.miss import MissError
from graphpass.ir.model import Model
from graphpass.ir.operators import CASTS, ELEMENTWISE, GATHERS, LAYOUT, NORMS, REDUCTIONS, SLICES, SOURCES, SPLITS
from graphpass.ir.rewriter import Rewriter
from graphpass.ir.values import fixed_size, is_activation, multiplies_matrices
from graphpass.ir.writer import Handle
from graphpass.passes.attention.step_builder import StepBuilder

#: Operators whose result at a position depends only on the same position of their operands.
_BY_POSITION = CASTS | ELEMENTWISE | GATHERS | LAYOUT | NORMS | REDUCTIONS | SLICES | SPLITS
_BY_POSITION |= {"Concat", "ConstantOfShape", "ScatterNDUpdate"}

#: Port of the operand that is the shape of the result, by operator.
_SHAPES = {"Broadcast": 1, "ConstantOfShape": 0, "Reshape": 1}

#: Lengths of a step that include past positions.
_COUNT_PAST: frozenset[Length] = frozenset({"past", "total"})


class NewPositions:
    """Clones the computation of all positions for the new positions only."""

    def __init__(self, model: Model, rewriter: Rewriter, joined: Mapping[Value, Value]) -> None:
        """Set the values at which cloning starts.

        Args:
            model: The model.
            rewriter: Its rewriter.
            joined: The value of the new positions by the value that joins them to the past.
        """
        self._graph, self._rewriter, self._joined = model.graph, rewriter, joined
        self._sizes, lengths = model.analysis(infer_sizes), model.analysis(find_step_lengths)
        self._builder = StepBuilder(model, rewriter)
        new = next((dimension for dimension, length in lengths.items() if length == "length"), ZERO)
        self._replaced = {
            dimension: ZERO if length == "past" else new
            for dimension, length in lengths.items()
            if length in _COUNT_PAST
        }

        def outputs(use: Use) -> tuple[Value, ...]:
            return use.node.outputs

        sources = [node.outputs[0] for node in model.graph.of_op(*SOURCES)]
        self._downstream, self._from_sources = (
            {use.node.index for use in model.graph.forward(starts, outputs)} for starts in (joined, sources)
        )
        self._made: dict[Value, Handle] = {}
        #: Values that do not depend on positions.
        self._free: set[Value] = set()

    def of(self, value: Value) -> Handle:
        """Return ``value`` for the new positions.

        Raises:
            MissError: An operator computes a position from other positions, or a size is unknown.
        """
        pending = [value]
        while pending:
            current = pending[-1]
            made = self._made.get(current) or self._kept(current)
            if made is not None:
                self._made[current] = made
                pending.pop()
                continue
            node = self._graph.producer(current)
            missing = [source for source in node.inputs if source is not None and source not in self._made]
            if missing:
                pending += missing
                continue
            self._require_sizes(node)
            if all(source is None or source in self._free for source in node.inputs):
                self._free.update(node.outputs)
                if node.index not in self._downstream:
                    self._made |= {output: self._rewriter.native(output) for output in node.outputs}
                    continue
            else:
                self._require(current)
            self._clone(node)
        return self._made[value]

    def _kept(self, value: Value) -> Handle | None:
        """Return the replacement of a value whose producer is not cloned, if any.

        Raises:
            MissError: Keys or values depend on an input.
        """
        if value in self._joined:
            return self._rewriter.native(self._joined[value])
        content = self._content(value)
        if value.node not in self._downstream and not any(map(self._counts_past, content or self._shape(value))):
            node = self._graph.producer(value)
            if node.op in SOURCES:
                raise MissError(node, "keys or values depend on this input")
            if content is None and value.node in self._from_sources:
                return None
            self._free.add(value)
            return self._rewriter.native(value)
        return None if content is None else self._counted(value, content)

    def _counted(self, value: Value, content: Vector) -> Handle:
        if not any(map(self._counts_past, content)):
            self._free.add(value)
        sizes = tuple(substitute(size, self._replaced) for size in content)
        if not self._builder.knows(sizes):
            raise MissError(self._graph.producer(value), "it computes a length other than those of the step")
        made = self._builder.vector(sizes)
        return made if value.rank else self._rewriter.op("Squeeze", made, axes=[0], name=f"{value.name}/new")

    def _counts_past(self, size: Expr) -> bool:
        return any(dimension in self._replaced for dimension, _ in dimensions(size))

    def _require_sizes(self, node: Node) -> None:
        """Check that lengths of the step are operands of a computation only as shapes.

        Raises:
            MissError: They are not.
        """
        for port, source in enumerate(node.inputs):
            content = self._content(source) if source is not None else None
            if port != _SHAPES.get(node.op) and any(map(dimensions, content or ())):
                raise MissError(node, f"{node.op} computes with a length of the step")

    def _content(self, value: Value) -> Vector | None:
        is_size = value.rank in {0, 1} and value.element_type in {"i32", "i64"}
        return self._sizes.content(value) if is_size else None

    def _shape(self, value: Value) -> Vector:
        return self._sizes.shape(value) or ()

    def _require(self, value: Value) -> None:
        """Check that the result of an operator at a position depends on that position only.

        Raises:
            MissError: It may depend on others.
        """
        node = self._graph.producer(value)
        is_weighted = multiplies_matrices(node) and not is_activation(self._graph, node.input(1))
        keeps_positions = any(map(self._counts_past, self._shape(value)))
        if not keeps_positions or (node.op not in _BY_POSITION and not is_weighted):
            raise MissError(node, f"{node.op} may compute a position from other positions")

    def _clone(self, node: Node) -> None:
        inputs = {port: self._made[source] for port, source in enumerate(node.inputs) if source is not None}
        name = f"{node.name}/new"
        if len(node.outputs) == 1:
            self._made[node.outputs[0]] = self._rewriter.clone(node, inputs, name)
            return
        axis = node.attributes.get("axis", 0)
        sizes = [fixed_size(output, axis) for output in node.outputs]
        if node.op not in SPLITS or None in sizes:
            raise MissError(node, "the sizes of its outputs are not constant")
        parts = self._rewriter.split(inputs[0], axis, [int(size or 0) for size in sizes], name)
        self._made |= dict(zip(node.outputs, parts, strict=True))
