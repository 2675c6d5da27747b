"""Infers sizes of tensors as far as the model fixes them, whatever its ports declare.

What a port declares may be nothing but the rank; that operands fit together, and what shape arithmetic computes, still
tells which sizes are fixed, which are those of an input, and which are sums of others. Sizes of operands are taken for
equal where neither is 1: a model that runs at more than one length has no others. That is enough to tell caches apart;
what passes rewrite by, `lengths` proves.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

from graphpass.analysis.shapes.linear_size import Classes, Size, Vector, multiply
from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.model import Model
from graphpass.ir.operators import ELEMENTWISE, KEEPS_ORDER
from graphpass.ir.slices import NO_END
from graphpass.ir.types import Dimension

__all__ = ["Sizes", "infer_sizes"]

#: Operators whose result has the sizes of their first input.
_SAME = frozenset(
    {"Softmax", "LogSoftmax", "CumSum", "Roll", "ScatterNDUpdate", "ScatterElementsUpdate", "ScatterUpdate"}
    | {"TensorScatter", "QuantizeLinear", "FakeQuantize", "Round", "Trilu", "ReverseSequence"}
)

#: Longer vectors of integers are no shapes.
_LONGEST = 16


def infer_sizes(model: Model) -> Sizes:
    """The sizes of all tensors of ``model``, for `Model.analysis`."""
    return Sizes(model.graph, step_port=4 if model.dialect == "onnx" else 3)


class Sizes:
    """Sizes of a graph's tensors, and the integers that its shape arithmetic computes."""

    def __init__(self, graph: Graph, step_port: int) -> None:
        """Infer them, operator by operator.

        Args:
            graph: The model.
            step_port: Which input of a Slice holds its steps: ONNX has it behind the axes, OpenVINO before them.
        """
        self._graph = graph
        self._step_port = step_port
        self._classes = Classes()
        self._shapes: dict[tuple[int, int], Vector] = {}
        self._contents: dict[tuple[int, int], Vector] = {}
        #: How many iterations a loop has.
        self._turns: dict[str, Size] = {}
        for node in graph.nodes:
            for value in node.outputs:
                if value.rank is not None:
                    self._shapes[value.node, value.port] = self._shape(node, value, value.rank)
            self._note_content(node)

    def shape(self, value: Value | None) -> Vector | None:
        """The size along each axis; ``None`` where not even the rank is known."""
        found = None if value is None else self._shapes.get((value.node, value.port))
        return None if found is None else tuple(map(self._classes.resolve, found))

    def content(self, value: Value | None) -> Vector | None:
        """The integers that ``value`` holds, a number or a vector of them; ``None`` where they cannot be told."""
        found = None if value is None else self._contents.get((value.node, value.port))
        return None if found is None else tuple(map(self._classes.resolve, found))

    def _shape(self, node: Node, value: Value, rank: int) -> Vector:
        rule = _RULES.get(node.op)
        if node.op in ELEMENTWISE:
            inferred: Vector | None = self._broadcast([self.shape(source) for source in node.inputs], rank)
        elif node.op in _SAME:
            inferred = self.shape(node.inputs[0])
        else:
            inferred = rule(self, node, value) if rule is not None else None
        if inferred is None or len(inferred) != rank:
            inferred = tuple(Size.of((value.node, value.port, axis)) for axis in range(rank))
        # Symbols are an input's word for its sizes; those inside are often one word for all that is unknown.
        given = Size.of if node.op == "Parameter" else None
        return tuple(self._as_declared(*pair, given) for pair in zip(inferred, value.shape or (), strict=True))

    def _as_declared(self, size: Size, declared: Dimension, symbol: Callable[[str], Size] | None) -> Size:
        if isinstance(declared, int):
            self._classes.join(size, Size(declared))
            return Size(declared)
        return symbol(declared) if declared is not None and symbol is not None else size

    def _broadcast(self, shapes: list[Vector | None], rank: int) -> Vector | None:
        """Sizes of operands that are combined element by element."""
        known = [shape for shape in shapes if shape is not None and len(shape) <= rank]
        result = []
        for axis in range(-rank, 0):
            sizes = [shape[axis] for shape in known if -axis <= len(shape) and shape[axis].plain != 1]
            for other in sizes[1:]:
                self._classes.join(sizes[0], other)
            if not sizes and len(known) < len(shapes):
                return None
            result.append(self._classes.resolve(sizes[0]) if sizes else Size(1))
        return tuple(result)

    def concat(self, node: Node, value: Value) -> Vector | None:
        """Concat: a sum along its axis, the same along the others."""
        shapes = [shape for source in node.inputs if (shape := self.shape(source)) is not None]
        rank = value.rank or 0
        if len(shapes) != len(node.inputs) or any(len(shape) != rank for shape in shapes):
            return None
        result = []
        for axis in range(rank):
            sizes = [shape[axis] for shape in shapes]
            if axis == node.attributes["axis"]:
                result.append(reduce(Size.__add__, sizes))
                continue
            for other in sizes[1:]:
                self._classes.join(sizes[0], other)
            result.append(sizes[0])
        return tuple(result)

    def slice(self, node: Node, value: Value) -> Vector | None:  # noqa: ARG002 - all rules are called alike
        """Slice of step 1; a tensor is taken to be as long as the slice asks for."""
        shape, axes = self.shape(node.inputs[0]), node.attributes.get("axes")
        starts, stops = (self.content(source) for source in node.inputs[1:3])
        if shape is None or axes is None or len(axes) != len(starts or stops or ()) or not self._steps_by_one(node):
            return None
        result = list(shape)
        for place, axis in enumerate(axes):
            start = self._position(shape[axis], starts[place] if starts is not None else None)
            stop = self._position(shape[axis], stops[place] if stops is not None else None)
            result[axis] = stop - start if start is not None and stop is not None else Size.of((node.index, 0, axis))
        return tuple(result)

    @staticmethod
    def _position(size: Size, position: Size | None) -> Size | None:
        if position is None:
            return None
        if position.plain is not None and position.plain >= NO_END:
            return size
        return size + position if position.is_negative else position

    def gather(self, node: Node, value: Value) -> Vector | None:  # noqa: ARG002
        """Gather: the indices' sizes stand where the axis was."""
        shape, indices, axis = self.shape(node.inputs[0]), self.shape(node.inputs[1]), node.attributes.get("axis")
        if shape is None or indices is None or axis is None:
            return None
        return (*shape[:axis], *indices, *shape[axis + 1 :])

    def transpose(self, node: Node, value: Value) -> Vector | None:  # noqa: ARG002
        """Transpose."""
        shape, order = self.shape(node.inputs[0]), node.attributes.get("order")
        if shape is None or order is None or sorted(order) != list(range(len(shape))):
            return None
        return tuple(shape[axis] for axis in order)

    def unsqueeze(self, node: Node, value: Value) -> Vector | None:
        """Unsqueeze."""
        shape, axes = self.shape(node.inputs[0]), node.attributes.get("axes")
        if shape is None or axes is None:
            return None
        kept = iter(shape)
        return tuple(Size(1) if axis in axes else next(kept) for axis in range(value.rank or 0))

    def squeeze(self, node: Node, value: Value) -> Vector | None:  # noqa: ARG002
        """Squeeze."""
        shape, axes = self.shape(node.inputs[0]), node.attributes.get("axes")
        if shape is None or axes is None:
            return None
        return tuple(size for axis, size in enumerate(shape) if axis not in axes)

    def reshape(self, node: Node, value: Value) -> Vector | None:  # noqa: ARG002
        """Reshape: what its target says; -1 is what is left over."""
        shape, target = self.shape(node.inputs[0]), self.content(node.inputs[1])
        if target is None:
            return None
        source = shape or ()
        copied = [source[axis] if size == Size() and axis < len(source) else size for axis, size in enumerate(target)]
        left = [size for size in source if size not in copied]
        rest = left[0] if len(left) == 1 and len(source) == len(target) else Size.of((node.index, 0, "rest"))
        return tuple(rest if size.plain == -1 else size for size in copied)

    def broadcast(self, node: Node, value: Value) -> Vector | None:
        """Broadcast to a shape, which may say 1 where the tensor is larger."""
        return self._broadcast([self.shape(node.inputs[0]), self.content(node.inputs[1])], value.rank or 0)

    def matmul(self, node: Node, value: Value) -> Vector | None:
        """MatMul of at least two axes each."""
        first, second = (self.shape(source) for source in node.inputs[:2])
        if first is None or second is None or min(len(first), len(second)) < 2:
            return None
        rows = first[-1 if node.attributes["transpose_a"] else -2]
        columns = second[-2 if node.attributes["transpose_b"] else -1]
        batch = self._broadcast([first[:-2], second[:-2]], (value.rank or 2) - 2)
        return None if batch is None else (*batch, rows, columns)

    def choice(self, node: Node, value: Value) -> Vector | None:
        """If: the sizes that all branches give alike."""
        shapes = [shape for source in node.inputs[1:] if (shape := self.shape(source)) is not None]
        if len(shapes) != len(node.inputs) - 1 or any(len(shape) != value.rank for shape in shapes):
            return None
        return tuple(
            sizes[0] if len(set(sizes)) == 1 else Size.of((node.index, 0, axis))
            for axis, sizes in enumerate(zip(*shapes, strict=True))
        )

    def carried(self, node: Node, value: Value) -> Vector | None:  # noqa: ARG002
        """What a loop carries: as large as it starts."""
        return self.shape(node.inputs[0])

    def final(self, node: Node, value: Value) -> Vector | None:  # noqa: ARG002
        """What a loop leaves: of the sizes that no iteration changes; others grow by nobody knows how much."""
        result, *start = (self.shape(source) for source in node.inputs)
        if result is None or not start or start[0] is None or len(start[0]) != len(result):
            return None
        sizes = []
        for axis, (before, after) in enumerate(zip(start[0], result, strict=True)):
            change, grown = after - before, Size.of((node.index, 0, axis))
            rises = before.plain is None and change.is_natural
            sizes.append(before if before == after else before + grown if rises else grown)
        return tuple(sizes)

    def sliced(self, node: Node, value: Value) -> Vector | None:  # noqa: ARG002
        """What an iteration takes."""
        shape, axis = self.shape(node.inputs[0]), node.attributes["axis"]
        if shape is None:
            return None
        self._turns.setdefault(node.called, shape[axis])
        kept = (Size(1),) if node.attributes["keeps_axis"] else ()
        return (*shape[:axis], *kept, *shape[axis + 1 :])

    def stacked(self, node: Node, value: Value) -> Vector | None:  # noqa: ARG002
        """What all iterations give, as many as there are parts of what the loop takes apart."""
        shape, axis = self.shape(node.inputs[0]), node.attributes["axis"]
        turns = self._turns.setdefault(node.called, Size.of((node.called, "turns")))
        if shape is None:
            return None
        if not node.attributes["keeps_axis"]:
            return (*shape[:axis], turns, *shape[axis:])
        total = turns if shape[axis].plain == 1 else Size.of((node.index, 0, axis))
        return (*shape[:axis], total, *shape[axis + 1 :])

    def _note_content(self, node: Node) -> None:
        """Note the integers that ``node`` computes, where they are a shape or a part of one."""
        if not node.outputs:
            return
        value = node.outputs[0]
        if node.op == "ShapeOf":
            found = self.shape(node.inputs[0])
        elif value.rank is None or value.rank > 1 or value.element_type not in {"i64", "i32"}:
            return
        else:
            found = self._content(node)
        if found is not None and len(found) <= _LONGEST:
            self._contents[value.node, value.port] = found

    def _content(self, node: Node) -> Vector | None:
        if node.op == "Constant":
            constant = self._graph.constant(node.outputs[0], _LONGEST)
            return None if constant is None else tuple(Size(int(number)) for number in constant.reshape(-1))
        sources = [self.content(source) for source in node.inputs]
        first = sources[0] if sources else None
        if node.op == "Concat":
            return tuple(size for source in sources for size in source) if None not in sources else None  # type: ignore[union-attr]
        if first is None:
            return None
        if node.op in KEEPS_ORDER:
            return first
        if node.op == "Gather" and sources[1] is not None:
            places = [place.plain for place in sources[1]]
            known = [place for place in places if place is not None and -len(first) <= place < len(first)]
            return tuple(first[place] for place in known) if len(known) == len(places) else None
        if node.op == "Slice":
            return self._part(node, first, sources[1:3])
        if node.op == "Negative":
            return tuple(-size for size in first)
        if node.op in _INTEGERS and sources[1] is not None:
            return _pairwise(_INTEGERS[node.op], first, sources[1])
        return None

    def _part(self, node: Node, first: Vector, bounds: list[Vector | None]) -> Vector | None:
        """What a Slice leaves of a vector."""
        start, stop = (bound[0].plain if bound is not None and len(bound) == 1 else None for bound in bounds)
        return first[start:stop] if start is not None and stop is not None and self._steps_by_one(node) else None

    def _steps_by_one(self, node: Node) -> bool:
        steps = self.content(node.inputs[self._step_port]) if self._step_port < len(node.inputs) else (Size(1),)
        return steps is not None and all(step.plain == 1 for step in steps)


_INTEGERS: dict[str, Callable[[Size, Size], Size | None]] = {
    "Add": Size.__add__,
    "Subtract": Size.__sub__,
    "Multiply": multiply,
}


def _pairwise(combine: Callable[[Size, Size], Size | None], first: Vector, second: Vector) -> Vector | None:
    if 1 not in {len(first), len(second)} and len(first) != len(second):
        return None
    length = max(len(first), len(second))
    found = [combine(first[i % len(first)], second[i % len(second)]) for i in range(length)]
    known = tuple(size for size in found if size is not None)
    return known if len(known) == length else None


_RULES: dict[str, Callable[[Sizes, Node, Value], Vector | None]] = {
    "Concat": Sizes.concat,
    "Slice": Sizes.slice,
    "Gather": Sizes.gather,
    "Transpose": Sizes.transpose,
    "Unsqueeze": Sizes.unsqueeze,
    "Squeeze": Sizes.squeeze,
    "Reshape": Sizes.reshape,
    "Broadcast": Sizes.broadcast,
    "MatMul": Sizes.matmul,
    "If": Sizes.choice,
    "Carried": Sizes.carried,
    "Final": Sizes.final,
    "Sliced": Sizes.sliced,
    "Stacked": Sizes.stacked,
}
