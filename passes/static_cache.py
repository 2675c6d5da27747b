"""The pass `static-cache`."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from graphpass.analysis.attention import Attention, find_attention
from graphpass.analysis.caches import analyze_caches
from graphpass.analysis.decomposed import read_scores
from graphpass.analysis.operands import attention_operands
from graphpass.analysis.parts import NoMatchError
from graphpass.analysis.values import held_constant
from graphpass.caches import Axes
from graphpass.conditions import HAS_CACHES, STATELESS
from graphpass.errors import UnsupportedError, UsageError
from graphpass.manager import Changed, Pass, PassResult, Skipped
from graphpass.model import Dialect
from graphpass.onnx_model import OnnxModel
from graphpass.onnx_rewrite import NodeWriter, attributes, drop_dead, input_at, node_name
from graphpass.onnx_walk import captured, in_order

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy
    import onnx

    from graphpass.caches import Cache
    from graphpass.graph import Graph

__all__ = ["StaticCache"]

#: From this version on there are TensorScatter and Attention's nonpad_kv_seqlen.
_TENSOR_SCATTER = 24

#: The layout that ONNX's Attention reads.
_USUAL = Axes(batch=0, heads=1, sequence=2, head_dim=3)

#: Inputs whose second axis is that of the new tokens.
_TOKENS = ("input_ids", "decoder_input_ids", "inputs_embeds")

#: Operators that lay a cache out for the product, position by position.
_LAYOUT = frozenset({"Cast", "Div", "Expand", "Identity", "Mul", "Reshape", "Squeeze", "Transpose", "Unsqueeze"})

#: Layout operators behind which the sequence stays the same axis; Transpose moves it.
_KEEPS_AXES = frozenset({"Cast", "Div", "Identity", "Mul"})

#: Operators that compute shapes out of shapes.
_ARITHMETIC = frozenset(
    {"Add", "Cast", "Concat", "ConstantOfShape", "Div", "Equal", "Gather", "Identity", "Mul", "Neg", "ReduceProd"}
    | {"Reshape", "Shape", "Slice", "Squeeze", "Sub", "Unsqueeze", "Where"}
)


@dataclass(frozen=True)
class StaticCache(Pass[OnnxModel]):
    """Give caches that grow a fixed capacity: each step writes its positions into the buffer that it was given.

    A runtime that is given one buffer as past and as present (ONNX Runtime with IO binding) neither allocates nor
    copies a cache then. What a step is given stays what it was: positions are written behind the past, whose length is
    that of ``attention_mask`` less that of the new tokens. Only a model without such a mask gets an input ``past_len``
    (i64 [1]).

    Scores and probabilities cover all slots of the buffer only where they meet the cache: the scores are cut to the
    positions that there are, and the probabilities are padded with zeros. So masks, windows, biases and sinks stay
    exactly what they were. From opset 24 on plain attention becomes ONNX's Attention, which reads the buffer as it lies
    and is told by ``nonpad_kv_seqlen`` how many positions there are: no copy of keys for each query head, no transposed
    one. (`onnx.version_converter` leads exports there.) Models of the onnxruntime-genai builder (GroupQueryAttention)
    write in place by themselves once past and present are one buffer.

    Options:
        capacity: How many positions fit, new ones included.

    Shapes:
        kv ``[batch, heads, sequence, head_dim]`` in any order; the sequence becomes ``capacity``.

    Before:
        Concat(past_key_values.0.key, key) = present.0.key -> MatMul(query, .) -> .. -> Softmax -> MatMul(., value)
    After:
        ScatterElements(past_key_values.0.key, slots, key) = present.0.key -> MatMul(query, .) -> Slice(0:length) -> ..
        -> Softmax -> Pad(0, capacity) -> MatMul(., value); from opset 24 on
        TensorScatter(past_key_values.0.key, key) = present.0.key -> Attention(query, ., value, mask, length)

    Raises:
        PreconditionError: GP302, no caches, or stateful.
        UsageError: GP266, the capacity is no positive number.
        UnsupportedError: GP391, a cache that no Concat appends to, or that something else than attention reads; or no
            input that tells how many tokens are new.
    """

    name: ClassVar[str] = "static-cache"
    dialect: ClassVar[Dialect | None] = "onnx"
    requires = (HAS_CACHES, STATELESS)

    capacity: int = 2048

    def run(self, model: OnnxModel) -> PassResult:
        """See `Pass.run`."""
        if self.capacity < 1:
            raise UsageError("GP266", f"a capacity of {self.capacity} positions holds nothing")
        caches = [cache for cache in analyze_caches(model).of_kind("kv") if not _is_fixed(cache)]
        if not caches:
            return Skipped("no cache grows")
        names = _Names(model)
        others = [cache for cache in caches if not names.is_inside(cache, "GroupQueryAttention")]
        if others:
            _Rewrite(model, names, self.capacity).run(others)
        _declare(model.proto.graph, caches, self.capacity)
        return Changed(model, {"caches": len(caches), "capacity": self.capacity})


def _is_fixed(cache: Cache) -> bool:
    axis = cache.axes.sequence
    return axis is None or cache.shape is None or isinstance(cache.shape[axis], int)


def _declare(graph: onnx.GraphProto, caches: Iterable[Cache], capacity: int) -> None:
    """Say on the ports how many positions a cache has; what was said of values in between is no longer true."""
    axes = {name: cache.axes.sequence for cache in caches for name in (cache.read, cache.write)}
    for info in (*graph.input, *graph.output):
        if (axis := axes.get(info.name)) is not None:
            info.type.tensor_type.shape.dim[axis].dim_value = capacity


class _Names:
    """Who makes and who reads each value of a graph."""

    def __init__(self, model: OnnxModel) -> None:
        graph = model.proto.graph
        self.outputs = {info.name for info in graph.output}
        self.makers: dict[str, onnx.NodeProto] = {}
        self.readers: dict[str, list[tuple[onnx.NodeProto, int]]] = {}
        self.captured: set[str] = set()
        for node in graph.node:
            self.makers.update(dict.fromkeys(node.output, node))
            self.captured.update(captured(node))
            for port, name in enumerate(node.input):
                self.readers.setdefault(name, []).append((node, port))

    def is_inside(self, cache: Cache, operator: str) -> bool:
        """Whether such an operator keeps ``cache``. GroupQueryAttention writes in place if past and present are one."""
        maker = self.makers.get(str(cache.write))
        return maker is not None and maker.op_type == operator and cache.read in maker.input

    def append(self, cache: Cache) -> onnx.NodeProto:
        """The Concat that appends to ``cache``, behind whatever converts its result for the output."""
        node = self.makers.get(str(cache.write))
        while node is not None and node.op_type in {"Cast", "Identity"}:
            node = self.makers.get(node.input[0])
        if node is None or node.op_type != "Concat" or list(node.input[:1]) != [cache.read] or len(node.input) != 2:
            raise _refusal(cache, "is not appended to by a Concat of the past and the new positions")
        return node


def _refusal(cache: Cache, reason: str) -> UnsupportedError:
    return UnsupportedError(
        "GP391",
        f"cache {cache.name} cannot get a fixed capacity: it {reason}",
        "graphpass inspect shows how it is updated and read",
    )


class _Rewrite:
    """Writes caches in place, in a graph whose caches were appended to."""

    def __init__(self, model: OnnxModel, names: _Names, capacity: int) -> None:
        self._model, self._names = model, names
        self._graph = model.proto.graph
        opset = next(entry.version for entry in model.proto.opset_import if entry.domain in {"", "ai.onnx"})
        self._writer = NodeWriter("static_cache", opset)
        self._capacity = self._writer.integers([capacity])
        self._products = _score_products(model)
        self._slots: dict[object, str] = {}
        self._rows: dict[str, str] = {}
        self._paddings: dict[str, str] = {}
        self._gone: list[onnx.NodeProto] = []
        self._axes = _sequence_axes(model)
        self._fused: set[str] = set()
        self._past = self._total = ""

    def run(self, caches: list[Cache]) -> None:
        """Rewrite all of ``caches``."""
        self._tell_lengths()
        operators = {
            maker.output[0]: maker
            for cache in caches
            if (maker := self._names.makers.get(str(cache.write))) is not None and maker.op_type == "Attention"
        }
        for operator in operators.values():
            self._write_before(operator)
        appended = [cache for cache in caches if not self._names.is_inside(cache, "Attention")]
        for cache in appended:
            self._write_in_place(cache)
        if self._writer.opset >= _TENSOR_SCATTER:
            self._fuse(appended)
        for cache in caches:
            self._keep_shape(cache.read, cache.axes.sequence, self._past)
        for cache in appended:
            self._attend(cache)
        for node in self._gone:
            self._graph.node.remove(node)
        nodes = in_order([*self._graph.node, *self._writer.nodes], set())
        del self._graph.node[:]
        self._graph.node.extend(nodes)
        drop_dead(self._graph)

    def _tell_lengths(self) -> None:
        """How many positions there are before the step and behind it, i64 [1]."""
        writer, ports = self._writer, {port.name: port for port in self._model.inputs}
        tokens = next((name for name in _TOKENS if name in ports), None)
        if tokens is None:
            raise UnsupportedError("GP391", f"no input tells how many tokens are new: none is {' or '.join(_TOKENS)}")
        length = writer.size(tokens, 1, label="new_length")
        mask = ports.get("attention_mask")
        if mask is not None and len(mask.shape or ()) == 2:
            self._total = writer.size(mask.name, 1, label="total_length")
            self._past = writer.op("Sub", self._total, length, label="past_length")
            return
        import onnx

        self._graph.input.append(onnx.helper.make_tensor_value_info("past_len", onnx.TensorProto.INT64, [1]))
        self._past = "past_len"
        self._total = writer.op("Add", self._past, length, label="total_length")

    def _write_before(self, node: onnx.NodeProto) -> None:
        """Take the caches out of an Attention of ONNX: TensorScatter writes them, and it is told how much to read."""
        writer = self._writer
        if writer.opset < _TENSOR_SCATTER:
            raise UnsupportedError(
                "GP391",
                f"Attention {node_name(node)} of opset {writer.opset} cannot read a cache of fixed capacity",
                f"convert the model to opset {_TENSOR_SCATTER} with onnx.version_converter first",
            )
        given = attributes(node)
        operands, pasts, presents = list(node.input[:3]), list(node.input[4:6]), list(node.output[1:3])
        heads = [given.pop(name, 0) for name in ("q_num_heads", "kv_num_heads", "kv_num_heads")]
        if heads[0]:
            raise UnsupportedError("GP391", f"Attention {node_name(node)} has its heads in the last axis")
        for past, new, present in zip(pasts, operands[1:], presents, strict=True):
            writer.op(
                "TensorScatter", past, new, self._for_each_row(self._past, new), axis=2, output=present, label="write"
            )
        mask = input_at(node, 3)
        mask = self._padded(mask) if mask else ""
        used = self._for_each_row(self._total, operands[0])
        writer.op("Attention", operands[0], *presents, mask, "", "", used, output=node.output[0], **given)
        self._gone.append(node)

    def _write_in_place(self, cache: Cache) -> None:
        """Put a scatter in the place of the Concat; it makes the model's output itself."""
        writer, names = self._writer, self._names
        concat = names.append(cache)
        new, axis, present = concat.input[1], _sequence(cache), str(cache.write)
        if writer.opset >= _TENSOR_SCATTER:
            starts = self._for_each_row(self._past, new)
            writer.op("TensorScatter", cache.read, new, starts, axis=axis, output=present, label="write")
        else:
            writer.op(
                "ScatterElements", cache.read, self._slots_of(cache, new), new, axis=axis, output=present, label="write"
            )
        # Where a conversion to the type that it has already makes the output, it would be a copy.
        node = names.makers[present]
        self._gone.append(node)
        while node is not concat:
            node = names.makers[node.input[0]]
            self._gone.append(node)
            self._redirect(node.output[0], present)

    def _for_each_row(self, number: str, new: str) -> str:
        """``number``, i64 [1], once for each row of the batch."""
        if number not in self._rows:
            self._rows[number] = self._writer.op("Expand", number, self._writer.size(new, 0), label="for_each_row")
        return self._rows[number]

    def _fuse(self, caches: list[Cache]) -> None:
        """Let ONNX's Attention compute what it can: it reads a buffer as it lies, without copies for heads."""
        writer = self._writer
        presents = {cache.name: str(cache.write) for cache in caches if cache.axes == _USUAL}
        blocks = {block.node: block for block in analyze_caches(self._model).attention}
        for attention in self._model.analysis(find_attention):
            block = blocks.get(attention.node.name)
            scale = _scale(self._model.graph, attention)
            if (
                block is None
                or scale is None
                or not _is_plain(attention)
                or not {block.key, block.value} <= presents.keys()
            ):
                continue
            query, output = attention.query, attention.output.name
            assert query is not None
            mask = self._padded(attention.masks[0].value.name) if attention.masks else ""
            operands = (query.name, presents[str(block.key)], presents[str(block.value)], mask, "", "")
            old = self._names.makers[output]
            old.output[0] = f"{output}/decomposed"
            used = self._for_each_row(self._total, query.name)
            writer.op("Attention", *operands, used, output=output, scale=scale, label="attention")
            scores = read_scores(self._model.graph, attention.node).product
            assert scores is not None
            self._fused |= {scores.outputs[0].name, old.output[0]}

    def _slots_of(self, cache: Cache, new: str) -> str:
        """For each new element the slot that it goes to, of the shape of ``new``; caches of one shape share them."""
        writer, axis = self._writer, _sequence(cache)
        key = (axis, cache.shape)
        if key not in self._slots:
            length = writer.op("Squeeze", writer.size(new, axis), writer.integers([0]))
            row = writer.op("Add", writer.op("Range", writer.integers(0), length, writer.integers(1)), self._past)
            column = writer.op("Reshape", row, writer.integers([-1] + [1] * (len(cache.shape or ()) - axis - 1)))
            self._slots[key] = writer.op("Expand", column, writer.op("Shape", new), label="slots")
        return self._slots[key]

    def _attend(self, cache: Cache) -> None:
        """Let attention read all slots, and all else see only the positions that there are."""
        path: dict[str, int | None] = {str(cache.write): cache.axes.sequence}
        steps: list[onnx.NodeProto] = []
        pending = list(path)
        while pending:
            name = pending.pop()
            if name in self._names.captured:
                raise _refusal(cache, "is read in the body of a loop or branch")
            for node, port in self._readers(name):
                if node.op_type == "Shape":
                    continue
                if node.op_type == "MatMul" and node.output[0] in self._fused:
                    continue
                if node.op_type == "MatMul" and port == 1:
                    self._meet(node, node.output[0] in self._products)
                elif node.op_type in _LAYOUT and (port == 0 or node.op_type in _KEEPS_AXES):
                    path[node.output[0]] = self._axes.get(node.output[0], _moved(node, path[name]))
                    steps.append(node)
                    pending.append(node.output[0])
                else:
                    raise _refusal(cache, f"is read by {node.op_type} {node_name(node)}, which is no attention")
        self._keep_layout(path, steps)
        for name, axis in path.items():
            self._keep_shape(name, axis, self._total, cache)

    def _readers(self, name: str) -> list[tuple[onnx.NodeProto, int]]:
        gone = {id(node) for node in self._gone}
        return [(node, port) for node, port in self._names.readers.get(name, ()) if id(node) not in gone]

    def _meet(self, product: onnx.NodeProto, makes_scores: bool) -> None:
        """Cut the scores to the positions that there are, or pad the probabilities to all slots."""
        writer = self._writer
        if makes_scores:
            scores = product.output[0]
            whole = product.output[0] = f"{scores}/all_slots"
            bounds = (writer.integers([0]), self._total, writer.integers([-1]), writer.integers([1]))
            writer.op("Slice", whole, *bounds, output=scores, label="scores")
            return
        product.input[0] = self._padded(product.input[0])

    def _padded(self, name: str) -> str:
        """``name`` with zeros behind the positions that there are, along its last axis."""
        writer = self._writer
        if name not in self._paddings:
            value = next(value for node in self._model.graph.nodes for value in node.outputs if value.name == name)
            if value.rank is None:
                raise UnsupportedError("GP391", f"the rank of {name} is not known, so it cannot be padded")
            free = writer.op("Sub", self._capacity, self._total, label="free")
            zeros = writer.integers([0] * (2 * value.rank - 1))
            self._paddings[name] = writer.op("Pad", name, writer.op("Concat", zeros, free, axis=0), label="padded")
        return self._paddings[name]

    def _keep_layout(self, path: dict[str, int | None], steps: list[onnx.NodeProto]) -> None:
        """Let what lays the cache out go on by the buffer's shape: by a copy of the arithmetic that tells it."""
        copies: dict[str, str] = {}
        for node in steps:
            for port in range(1, len(node.input)):
                node.input[port] = self._copied(node.input[port], path, copies)

    def _copied(self, name: str, path: dict[str, int | None], copies: dict[str, str]) -> str:
        """``name``, or a copy of it where it is computed from the shape of a value on the ``path``."""
        import onnx

        cone = self._cone(name)
        for node in reversed(cone):
            if node.output[0] in copies:
                continue
            reads_path = node.op_type == "Shape" and node.input[0] in path
            if not reads_path and not any(source in copies for source in node.input):
                continue
            copy = onnx.NodeProto()
            copy.CopyFrom(node)
            copy.name = copy.output[0] = copies[node.output[0]] = f"{node.output[0]}/of_all_slots"
            for port, source in enumerate(node.input):
                copy.input[port] = copies.get(source, source)
            self._writer.nodes.append(copy)
        return copies.get(name, name)

    def _cone(self, name: str) -> list[onnx.NodeProto]:
        """The shape arithmetic behind ``name``, readers before what they read."""
        found: dict[int, onnx.NodeProto] = {}
        pending = [name]
        while pending:
            node = self._names.makers.get(pending.pop())
            if node is None or node.op_type not in _ARITHMETIC or len(node.output) != 1:
                continue
            found.pop(id(node), None)
            found[id(node)] = node
            if node.op_type != "Shape":
                pending += node.input
        return list(found.values())

    def _keep_shape(self, name: str, axis: int | None, length: str, cache: Cache | None = None) -> None:
        """Let those that read the shape of ``name`` see ``length`` positions along ``axis``."""
        writer = self._writer
        for node, _ in self._readers(name):
            if node.op_type != "Shape":
                continue
            if axis is None:
                self._check_only_bounds(node, cache)
                continue
            if self._tell_length(node, axis, length):
                continue
            whole = writer.op("Shape", name, label="all_slots")
            parts = [writer.slice(whole, 0, axis, 0), length, writer.slice(whole, axis + 1, None, 0)]
            given = {attribute.name: attribute.i for attribute in node.attribute}
            shape = writer.op("Concat", *(parts[1:] if axis == 0 else parts), axis=0, label="positions")
            start, end = given.get("start", 0), given.get("end")
            writer.slice(shape, start, end, 0, output=node.output[0], label="shape")
            self._gone.append(node)

    def _tell_length(self, shape: onnx.NodeProto, axis: int, length: str) -> bool:
        """Give ``length`` itself to those who take but that from a shape; whether that is all who read it."""
        readers = self._readers(shape.output[0])
        indices = [self._constants.get(node.input[1]) if node.op_type == "Gather" else None for node, _ in readers]
        if shape.attribute or any(index is None or index.size != 1 or index.item() != axis for index in indices):
            return False
        for (node, _), index in zip(readers, indices, strict=True):
            assert index is not None
            given = (length, self._writer.integers([0])) if index.ndim == 0 else (length,)
            self._writer.op("Squeeze" if index.ndim == 0 else "Identity", *given, output=node.output[0], label="length")
            self._gone.append(node)
        self._gone.append(shape)
        return True

    @functools.cached_property
    def _constants(self) -> dict[str, numpy.ndarray | None]:
        graph = self._model.graph
        return {node.outputs[0].name: graph.constant(node.outputs[0], 1) for node in graph.of_op("Constant")}

    def _check_only_bounds(self, shape: onnx.NodeProto, cache: Cache | None) -> None:
        """That sizes of which no axis is known only bound slices from above: more slots than positions do no harm."""
        pending, seen = list(shape.output), set()
        while pending:
            for node, port in self._readers(pending.pop()):
                if node.op_type == "Slice" and port == 2:
                    continue
                if node.op_type not in _ARITHMETIC or (node.op_type == "Slice" and port > 0):
                    assert cache is not None
                    raise _refusal(cache, f"has its length read by {node.op_type} {node_name(node)} behind a Reshape")
                if node.output[0] not in seen:
                    seen.add(node.output[0])
                    pending.append(node.output[0])

    def _redirect(self, old: str, new: str) -> None:
        for node, port in self._names.readers.get(old, ()):
            node.input[port] = new
            self._names.readers.setdefault(new, []).append((node, port))


def _sequence(cache: Cache) -> int:
    assert cache.axes.sequence is not None
    return cache.axes.sequence


def _moved(node: onnx.NodeProto, axis: int | None) -> int | None:
    """Where ``axis`` stands behind ``node``; ``None`` where that is not told."""
    if axis is None or node.op_type in _KEEPS_AXES:
        return axis
    if node.op_type == "Transpose":
        order = next(attribute.ints for attribute in node.attribute if attribute.name == "perm")
        return list(order).index(axis)
    return None


def _scale(graph: Graph, attention: Attention) -> float | None:
    """What the products of ``attention`` are multiplied with behind its query and key; ``None`` where no constant."""
    product = 1.0
    for scale in attention.scales:
        factor = held_constant(graph, scale.value)
        if factor is None:
            return None
        product *= 1 / float(factor.item()) if scale.divides else float(factor.item())
    return product


def _is_plain(attention: Attention) -> bool:
    """Whether ONNX's Attention computes the same: one mask that is added or keeps scores, no sink."""
    query, masks = attention.query, attention.masks
    return (
        attention.reason is None
        and not attention.is_fused
        and attention.sink is None
        and query is not None
        and query.rank == attention.output.rank == 4
        and len(masks) <= 1
        and all(
            mask.value.rank == 4 and mask.keeps is not False and not mask.is_subtracted and not mask.scales
            for mask in masks
        )
    )


def _sequence_axes(model: OnnxModel) -> dict[str, int]:
    """Where the positions stand in what attention reads as key or value, by name."""
    nodes = model.graph.nodes
    return {
        nodes[index].outputs[port].name: operands[0].labels.index("sequence")
        for (index, port), operands in model.analysis(attention_operands).items()
        if "sequence" in operands[0].labels
    }


def _score_products(model: OnnxModel) -> set[str]:
    """What the products of query and key of all decomposed attention are called."""
    graph = model.graph
    found = set()
    for attention in model.analysis(find_attention):
        if attention.is_fused:
            continue
        try:
            product = read_scores(graph, attention.node).product
        except NoMatchError as miss:
            raise UnsupportedError(
                "GP391", f"attention {attention.node.name} cannot read a cache of fixed capacity: {miss}"
            ) from miss
        assert product is not None
        found.add(product.outputs[0].name)
    return found
