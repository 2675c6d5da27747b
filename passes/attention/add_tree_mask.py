"""The pass `add-tree-mask`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from graphpass.analysis.attention.find import Attention, find_attention
from graphpass.analysis.attention.sinks import sink_of, subtracts_row_maximum
from graphpass.analysis.attention.types import NoMatchError
from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.analysis.masks.window import read_mask
from graphpass.dialects.onnx.model import OnnxModel
from graphpass.dialects.onnx.rewrite import NodeWriter, rewrite_nodes
from graphpass.dialects.onnx.tensors import element_code
from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.dialects.openvino.rewrite import (
    TOKEN_INPUTS,
    add_input,
    input_length,
    integers,
    named,
    output_of,
    scalar,
)
from graphpass.engine.conditions import HAS_CACHES
from graphpass.engine.passes import Changed, Pass, PassResult
from graphpass.errors import PreconditionError, UnsupportedError
from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.model import Model
from graphpass.ir.values import keeps_elements
from graphpass.passes.masks.window_from_positions import compares_positions

if TYPE_CHECKING:
    import onnx
    import openvino

    from graphpass.ir.cache import AttentionBlock, Cache, Inventory

__all__ = ["AddTreeMask"]

_NAME = "tree_mask"

#: Operators that take a mask, and at which port.
_MASK_PORTS = {"ScaledDotProductAttention": 3, "Attention": 3}


@dataclass(frozen=True)
class AddTreeMask(Pass[Model]):
    """Let one step hold a tree of draft tokens, of which each branch sees its own ancestors alone.

    The input ``tree_mask`` f32 ``[1 or batch, m, m]`` is added to the scores of the last ``m`` queries over the last
    ``m`` keys, in every attention over a cache that grows: 0 where a token is to see another, a large negative number
    where not. A tree's tokens stand in an order in which parents come before children, and see themselves;
    ``position_ids`` gives each its depth, so the model needs that input. ``m`` is at most the number of new tokens;
    ``[1, 0, 0]`` changes nothing. What the mask was goes on to hold.

    What the CPU plugin fuses it goes on fusing. Linear caches cannot hold a tree: each token's state follows that of
    the token before it.

    Shapes:
        tree_mask f32 ``[1 or batch, m, m]``; masks of attention ``[batch, heads, length, sequence]``

    Before:
        mask -> ScaledDotProductAttention
        scores -> Softmax
    After:
        Add(mask, Pad(Unsqueeze(tree_mask, 1), zeros up to [length, sequence])) -> ScaledDotProductAttention
        Add(scores, ..) -> Softmax

    Raises:
        PreconditionError: GP302 the model has no caches; GP360 it has an input tree_mask already; GP361 it has no
            input position_ids.
        UnsupportedError: GP340 an opset before 13; GP362 a cache that cannot hold a tree; GP363 attention that a mask
            cannot be added to, or that asks how far apart positions lie in the cache.
    """

    name: ClassVar[str] = "add-tree-mask"
    requires = (HAS_CACHES,)

    def run(self, model: Model) -> PassResult:
        """See `Pass.run`."""
        inventory = analyze_caches(model)
        _check_inputs(model)
        _check_caches(inventory)
        places = _places(model, inventory)
        lengths = _Lengths.of(model, inventory.of_kind("kv")[0])
        if isinstance(model, OpenVINOModel):
            _write_openvino(model, places, lengths)
        elif isinstance(model, OnnxModel):
            _write_onnx(model, places, lengths)
        return Changed(model, {"attention with a tree mask": len(places)})


@dataclass(frozen=True, slots=True)
class _Place:
    """Where the tree is added.

    Attributes:
        attention: The attention that shall see it.
        scores: What goes into its Softmax, ``[batch, heads, length, sequence]``; ``None`` where it takes a mask.
    """

    attention: Attention
    scores: Value | None


@dataclass(frozen=True, slots=True)
class _Lengths:
    """From what the number of queries and keys follows.

    Attributes:
        tokens: An input ``[batch, length, ..]``.
        mask: An input ``[batch, sequence]``, where there is one.
        past: A growing cache.
    """

    tokens: str
    mask: str | None
    past: Cache

    @classmethod
    def of(cls, model: Model, past: Cache) -> _Lengths:
        names = {port.name: len(port.shape or ()) for port in model.inputs}
        tokens = next((name for name in TOKEN_INPUTS if name in names), None)
        if tokens is None:
            raise UnsupportedError(
                "GP363", f"no input is called {' or '.join(TOKEN_INPUTS)}: nothing tells the new tokens"
            )
        return cls(tokens, "attention_mask" if names.get("attention_mask") == 2 else None, past)


def _check_inputs(model: Model) -> None:
    names = {port.name for port in model.inputs}
    if _NAME in names:
        raise PreconditionError("GP360", f"the model has an input {_NAME} already")
    if "position_ids" not in names:
        hint = "run expose-position-ids before it"
        if model.dialect == "onnx":
            hint = "run to-openvino and expose-position-ids before it"
        raise PreconditionError("GP361", "the tokens of a tree are told their depth by position_ids, no input", hint)


def _check_caches(inventory: Inventory) -> None:
    for cache in inventory.caches:
        if reason := _why_no_tree(cache):
            hint = "verify chains instead" if cache.kind == "linear" else None
            raise UnsupportedError("GP362", f"cache {cache.name} cannot hold a tree: {reason}", hint)


def _why_no_tree(cache: Cache) -> str | None:
    if cache.kind == "linear":
        return "each token's state follows that of the token before it"
    if cache.kind == "unknown":
        return "it is not known what it is"
    axis = cache.axes.sequence if cache.kind == "kv" else None
    if axis is not None and cache.shape is not None and isinstance(cache.shape[axis], int):
        return "its capacity is fixed, so that new tokens are not its last positions"
    return None


def _places(model: Model, inventory: Inventory) -> list[_Place]:
    growing = {cache.name for cache in inventory.of_kind("kv")}
    own = {attention.node.name: attention for attention in model.analysis(find_attention)}
    blocks = [block for block in inventory.attention if growing & {block.key, block.value}]
    if unread := growing - {name for block in blocks for name in (block.key, block.value)}:
        raise UnsupportedError("GP363", f"no attention is found that reads cache {min(unread)}")
    return [_place(model.graph, block, own.get(block.node)) for block in blocks]


def _place(graph: Graph, block: AttentionBlock, attention: Attention | None) -> _Place:
    obstacle = _position_obstacle(graph, block, attention)
    if attention is None:
        obstacle = "it is in the body of a loop or branch"
    elif obstacle is None:
        obstacle = _operator_obstacle(attention)
    try:
        if obstacle is None and attention is not None:
            return _Place(attention, None if attention.is_fused else _scores(graph, attention))
    except NoMatchError as miss:
        obstacle = str(miss)
    hint = "run window-from-positions before it, on OpenVINO IR" if block.window is not None else None
    raise UnsupportedError("GP363", f"attention {block.node} cannot take a tree: {obstacle}", hint)


def _position_obstacle(graph: Graph, block: AttentionBlock, attention: Attention | None) -> str | None:
    """What asks where positions lie in the cache, where branches lie one behind the other."""
    if block.mask is None:
        return "it is not known what its mask is made of"
    if block.window is not None or block.window_in is not None:
        operands = attention.node.inputs if attention is not None else ()
        window = read_mask(graph, operands[3]) if len(operands) > 3 else None
        if block.window_in == "state" or window is None or not compares_positions(graph, window):
            return "its window counts places in the cache, where branches lie one behind the other"
    biases = [called for part, called in (("alibi", "ALiBi"), ("bias", "a bias")) if part in block.mask]
    return f"{biases[0]} on its scores counts positions of the cache" if biases else None


def _operator_obstacle(attention: Attention) -> str | None:
    node = attention.node
    if node.op == "ScaledDotProductAttention" and node.attributes.get("causal"):
        return "it makes its causal mask itself"
    if node.op == "Attention" and len(node.inputs) > 6 and node.inputs[6] is not None:
        return "its keys lie in a buffer that is longer than the sequence"
    if attention.is_fused and node.op not in _MASK_PORTS:
        return f"{node.op} takes no mask besides its own"
    return None


def _scores(graph: Graph, attention: Attention) -> Value:
    """What goes into a Softmax, before heads are merged into the batch, and without a sink."""
    node = attention.node
    value = node.inputs[0]
    assert value is not None
    if node.attributes["axis"] not in {-1, (value.rank or 0) - 1}:
        raise NoMatchError("its Softmax is not over the last axis")
    while True:
        before = graph.producer(value)
        source = before.inputs[0] if before.inputs else None
        if before.op == "Concat":
            value = sink_of(graph, before)[0]
        elif source is not None and (_passes_on(graph, before) or (value.rank == 3 and before.op == "Reshape")):
            value = source
        elif value.rank == 4:
            return value
        else:
            raise NoMatchError(f"its scores have {value.rank} axes, not 4")


def _passes_on(graph: Graph, node: Node) -> bool:
    return keeps_elements(node) or subtracts_row_maximum(graph, node)


def _write_openvino(model: OpenVINOModel, places: list[_Place], lengths: _Lengths) -> None:
    # Found before anything is written: the neutral graph is of the model as it was.
    found = [(place, output_of(model.graph, place.scores) if place.scores is not None else None) for place in places]
    writer = _OpenVINOWriter(model.ov_model, lengths)
    for place, scores in found:
        if scores is None:
            writer.mask(place.attention.node.native)
        else:
            writer.add_to(scores)
    model.ov_model.validate_nodes_and_infer_types()


class _OpenVINOWriter:
    """Adds one input to many masks; what several attentions share is written once."""

    def __init__(self, native: openvino.Model, lengths: _Lengths) -> None:
        from openvino import opset13

        tree = add_input(native, _NAME, "f32", [-1, -1, -1])
        size = opset13.gather(
            named(opset13.shape_of(tree, "i64"), f"{_NAME}/shape"),
            integers([2], f"{_NAME}/last"),
            integers(0, f"{_NAME}/axis"),
        )
        named(size, f"{_NAME}/size")
        queries = input_length(native, lengths.tokens, f"{_NAME}/{lengths.tokens}")
        missing = [
            named(opset13.subtract(length, size), f"{_NAME}/{axis}_before")
            for axis, length in (("queries", queries), ("keys", self._keys(native, lengths, queries)))
        ]
        before = opset13.concat([integers([0, 0], f"{_NAME}/none"), *missing], 0)
        rows = named(opset13.unsqueeze(tree, integers([1], f"{_NAME}/heads")), f"{_NAME}/rows")
        zero = scalar(0, tree.get_element_type(), f"{_NAME}/zero")
        end = integers([0, 0, 0, 0], f"{_NAME}/after")
        padded = opset13.pad(rows, named(before, f"{_NAME}/before"), end, "constant", arg_pad_value=zero)
        self._padded = {"f32": named(padded, f"{_NAME}/padded")}
        self._joined: dict[tuple[str, int], openvino.Node] = {}

    def _keys(self, native: openvino.Model, lengths: _Lengths, queries: openvino.Node) -> openvino.Node:
        from openvino import opset13

        if lengths.mask is not None:
            return input_length(native, lengths.mask, f"{_NAME}/{lengths.mask}")
        cache = lengths.past
        read = next(node for node in native.get_ops() if node.get_friendly_name() == cache.read)
        shape = named(opset13.shape_of(read, "i64"), f"{_NAME}/past_shape")
        axis = integers([cache.axes.sequence or 0], f"{_NAME}/past_axis")
        past = named(opset13.gather(shape, axis, integers(0, f"{_NAME}/past_first")), f"{_NAME}/past_length")
        return named(opset13.add(past, queries), f"{_NAME}/keys")

    def mask(self, attention: openvino.Node) -> None:
        """Join the tree into the mask of a ScaledDotProductAttention."""
        from openvino import opset13

        if attention.get_input_size() > 3:
            attention.input(3).replace_source_output(self._join(attention.input_value(3)).output(0))
            return
        operands = attention.input_values()
        kind = operands[0].get_element_type().to_string()
        masked = opset13.scaled_dot_product_attention(*operands, self._tree(kind), causal=False)
        attention.output(0).replace(named(masked, attention.get_friendly_name()).output(0))

    def add_to(self, scores: openvino.Output) -> None:
        """Let those who read ``scores`` read their sum with the tree."""
        readers = scores.get_target_inputs()
        joined = self._join(scores)
        for reader in readers:
            reader.replace_source_output(joined.output(0))

    def _tree(self, kind: str) -> openvino.Node:
        from openvino import opset13

        if kind not in self._padded:
            self._padded[kind] = named(opset13.convert(self._padded["f32"], kind), f"{_NAME}/{kind}")
        return self._padded[kind]

    def _join(self, mask: openvino.Output) -> openvino.Node:
        from openvino import opset13

        key = (mask.get_node().get_name(), mask.get_index())
        if key not in self._joined:
            kind, name = mask.get_element_type(), f"{mask.get_node().get_friendly_name()}/{_NAME}"
            if kind.to_string() == "boolean":
                hidden = scalar(float("-inf"), self._padded["f32"].get_element_type(), f"{name}/hidden")
                joined = opset13.select(mask, self._padded["f32"], hidden)
            else:
                joined = opset13.add(mask, self._tree(kind.to_string()))
            self._joined[key] = named(joined, name)
        return self._joined[key]


def _write_onnx(model: OnnxModel, places: list[_Place], lengths: _Lengths) -> None:
    from onnx import helper

    graph = model.graph
    wanted = {place.attention.node.outputs[0].name for place in places if place.scores is None}
    scores = {place.scores.name: place.scores for place in places if place.scores is not None}
    producers = {output: name for name in scores for output in graph.producer(scores[name]).native.output}
    shared: dict[tuple[str, str], str] = {}

    def rewrite(native: onnx.NodeProto, writer: NodeWriter) -> None:
        tree = _OnnxTree(writer, lengths, shared)
        copy = type(native)()
        copy.CopyFrom(native)
        if native.output[0] in wanted:
            port = _MASK_PORTS["Attention"]
            copy.input.extend([""] * (port + 1 - len(copy.input)))
            node = next(place.attention.node for place in places if place.attention.node.outputs[0].name in copy.output)
            mask = node.inputs[port] if port < len(node.inputs) else None
            query = node.inputs[0]
            assert query is not None
            copy.input[port] = tree.joined(mask) if mask is not None else tree.of_type(query.element_type)
            writer.nodes.append(copy)
            return
        name = producers[native.output[0]]
        place = list(copy.output).index(name)
        copy.output[place] = f"{name}/without_tree"
        writer.nodes.append(copy)
        writer.op("Add", copy.output[place], tree.of_type(scores[name].element_type), label=_NAME, output=name)

    rewrite_nodes(model, lambda native: native.output[0] in wanted | producers.keys(), rewrite)
    info = helper.make_tensor_value_info(
        _NAME, element_code("f32"), [f"{_NAME}_batch", f"{_NAME}_length", f"{_NAME}_length"]
    )
    model.proto.graph.input.append(info)


class _OnnxTree:
    """Writes the padded tree, and masks that it is joined into, where they are first read."""

    def __init__(self, writer: NodeWriter, lengths: _Lengths, shared: dict[tuple[str, str], str]) -> None:
        self._writer, self._lengths, self._shared = writer, lengths, shared

    def of_type(self, kind: str) -> str:
        """The tree ``[1 or batch, 1, length, sequence]`` in an element type."""
        if ("tree", kind) not in self._shared:
            tree = self._padded() if kind == "f32" else self._cast(kind)
            self._shared["tree", kind] = tree
        return self._shared["tree", kind]

    def joined(self, mask: Value) -> str:
        """The sum of a mask, additive or boolean, and the tree."""
        key = ("mask", mask.name)
        if key not in self._shared:
            if mask.element_type == "boolean":
                hidden = self._writer.number(float("-inf"), element_code("f32"))
                self._shared[key] = self._writer.op("Where", mask.name, self.of_type("f32"), hidden, label=_NAME)
            else:
                self._shared[key] = self._writer.op("Add", mask.name, self.of_type(mask.element_type), label=_NAME)
        return self._shared[key]

    def _cast(self, kind: str) -> str:
        return self._writer.op("Cast", self.of_type("f32"), label=f"{_NAME}_{kind}", to=element_code(kind))

    def _padded(self) -> str:
        write, lengths = self._writer, self._lengths
        size, queries = write.size(_NAME, 1), write.size(lengths.tokens, 1)
        if lengths.mask is not None:
            keys = write.size(lengths.mask, 1)
        else:
            keys = write.op("Add", write.size(lengths.past.read, lengths.past.axes.sequence or 0), queries)
        missing = [write.op("Sub", length, size) for length in (queries, keys)]
        none = write.integers([0, 0])
        pads = write.op("Concat", none, *missing, none, none, axis=0)
        return write.op("Pad", write.op("Unsqueeze", _NAME, write.integers([1])), pads, label=f"{_NAME}_padded")
