"""The pass `add-tree-mask`."""

from __future__ import annotations

from dataclasses import dataclass

from graphpass.analysis.attention.find import find_attention
from graphpass.analysis.attention.mask import AttentionMask
from graphpass.analysis.attention.softmax import sink_of, subtracts_row_maximum
from graphpass.analysis.attention.types import Attention
from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.analysis.caches.masks import find_masks
from graphpass.engine.conditions import HAS_CACHES
from graphpass.engine.passes import Done, Pass
from graphpass.errors import PreconditionError, UnsupportedError
from graphpass.ir.cache import AttentionBlock, Cache, Inventory
from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.miss import MissError
from graphpass.ir.model import Model
from graphpass.ir.rewriter import Rewriter
from graphpass.ir.values import is_value_preserving
from graphpass.ir.writer import Handle
from graphpass.passes.attention.step_builder import StepBuilder

_NAME = "tree_mask"

#: Port of the mask by operator.
_MASK_PORTS = {"ScaledDotProductAttention": 3, "Attention": 3}


@dataclass(frozen=True)
class AddTreeMask(Pass[Model]):
    """Add a mask of draft trees: tokens attend only to their ancestors.

    The input ``tree_mask`` f32 ``[1 or batch, m, m]`` is added to the scores of the last ``m`` queries over the last
    ``m`` keys, in every attention over a growing cache: 0 if the query attends to the key, a large negative number
    otherwise. ``m`` is at most the number of new tokens; a mask of shape ``[1, 0, 0]`` has no effect. The original
    mask still applies.

    Parents come before their children, and each token attends to itself. The model requires the input
    ``position_ids``: the depth of each token.

    The CPU plugin still fuses attention. Linear caches cannot store a tree: each state depends on the state after the
    preceding token.

    Shapes:
        tree_mask f32 ``[1 or batch, m, m]``; masks of attention ``[batch, heads, length, sequence]``

    Before:
        mask -> ScaledDotProductAttention
        scores -> Softmax
    After:
        Add(mask, Pad(Unsqueeze(tree_mask, 1), zeros up to [length, sequence])) -> ScaledDotProductAttention
        Add(scores, ..) -> Softmax

    Raises:
        PreconditionError: GP302, the model has no caches; GP360, it has an input tree_mask already; GP361, it has no
            input position_ids.
        UnsupportedError: GP340, an opset before 13; GP362, a cache that cannot store a tree; GP363, attention without a
            mask operand, or that measures distances in slots of the cache.
    """

    name = "add-tree-mask"
    requires = (HAS_CACHES,)

    def run(self, model: Model) -> Done:
        inventory = analyze_caches(model)
        _check_inputs(model)
        _check_caches(inventory)
        sites = _sites(model, inventory)
        rewriter = model.rewriter()
        tree = _Tree(rewriter, StepBuilder(model, rewriter))
        for site in sites:
            tree.add_to(site)
        rewriter.finish()
        return Done({"attention with a tree mask": len(sites)})


@dataclass(frozen=True, slots=True)
class _Site:
    """An attention block that gets the tree mask.

    Attributes:
        attention: The attention block.
        scores: Input of its Softmax, ``[batch, heads, length, sequence]``; ``None`` if the operator has a mask operand.
    """

    attention: Attention
    scores: Value | None


def _check_inputs(model: Model) -> None:
    names = {port.name for port in model.inputs}
    if _NAME in names:
        raise PreconditionError("GP360", f"the model already has an input {_NAME}")
    if "position_ids" not in names:
        hint = "run expose-position-ids before add-tree-mask"
        if model.dialect == "onnx":
            hint = "run to-openvino and expose-position-ids before add-tree-mask"
        raise PreconditionError("GP361", "add-tree-mask requires input position_ids, the depth of tokens", hint)


def _check_caches(inventory: Inventory) -> None:
    for cache in inventory.caches:
        if reason := _why_no_tree(cache):
            hint = "verify chains instead" if cache.kind == "linear" else None
            raise UnsupportedError("GP362", f"cache {cache.name} cannot store a tree: {reason}", hint)


def _why_no_tree(cache: Cache) -> str | None:
    if cache.kind == "linear":
        return "the state after each token depends on the state before it"
    if cache.kind == "unknown":
        return "its kind is unknown"
    if cache.kind == "kv" and cache.capacity is not None:
        return "its capacity is fixed, so its last positions are not the new tokens"
    return None


def _sites(model: Model, inventory: Inventory) -> list[_Site]:
    growing = {cache.name for cache in inventory.of_kind("kv")}
    own = {attention.node.name: attention for attention in model.analysis(find_attention)}
    masks = {mask.node.name: mask for mask in model.analysis(find_masks)}
    blocks = [block for block in inventory.attention if growing & {block.key, block.value}]
    if unread := growing - {name for block in blocks for name in (block.key, block.value)}:
        raise UnsupportedError("GP363", f"found no attention that reads cache {min(unread)}")
    return [_site(model.graph, block, own.get(block.node), masks.get(block.node)) for block in blocks]


def _site(graph: Graph, block: AttentionBlock, attention: Attention | None, mask: AttentionMask | None) -> _Site:
    obstacle = _position_obstacle(block, mask)
    if attention is None:
        obstacle = "it is in the body of a loop or branch"
    elif obstacle is None:
        obstacle = _operator_obstacle(attention)
    try:
        if obstacle is None and attention is not None:
            return _Site(attention, None if attention.is_fused else _scores(graph, attention))
    except MissError as error:
        obstacle = str(error.miss)
    hint = "run window-from-positions before add-tree-mask, on OpenVINO IR" if block.window is not None else None
    raise UnsupportedError("GP363", f"attention {block.node} does not support a tree: {obstacle}", hint)


def _position_obstacle(block: AttentionBlock, mask: AttentionMask | None) -> str | None:
    """Return the reason if the mask or a bias counts slots, in which siblings differ."""
    if block.mask is None:
        return "its mask is not recognized"
    if block.is_windowed and (block.window_in == "state" or mask is None or not mask.counts_positions):
        return "its window counts slots of the cache, in which the branches of a tree follow one another"
    biases = [called for part, called in (("alibi", "ALiBi"), ("bias", "a bias")) if part in block.mask]
    return f"{biases[0]} on its scores counts slots of the cache" if biases else None


def _operator_obstacle(attention: Attention) -> str | None:
    node = attention.node
    if node.op == "ScaledDotProductAttention" and node.attributes.get("causal"):
        return "it applies a causal mask by attribute"
    if node.op == "Attention" and len(node.inputs) > 6 and node.inputs[6] is not None:
        return "its keys are in a buffer longer than the sequence"
    if attention.is_fused and node.op not in _MASK_PORTS:
        return f"{node.op} does not accept a mask"
    return None


def _scores(graph: Graph, attention: Attention) -> Value:
    """Return the scores ``[batch, heads, length, sequence]`` upstream of a Softmax, without sink.

    Raises:
        MissError: The Softmax is over another axis, or the scores do not have 4 axes.
    """
    node = attention.node
    value = node.inputs[0]
    assert value is not None
    if node.attributes["axis"] not in {-1, (value.rank or 0) - 1}:
        raise MissError(node, "its Softmax is not over the last axis")
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
            raise MissError(node, f"its scores have {value.rank} axes, not 4")


def _passes_on(graph: Graph, node: Node) -> bool:
    return is_value_preserving(node) or subtracts_row_maximum(graph, node)


class _Tree:
    def __init__(self, rewriter: Rewriter, step: StepBuilder) -> None:
        self._rewriter, self._write = rewriter, rewriter.under(_NAME)
        write = self._write
        tree = rewriter.input(_NAME, "f32", [f"{_NAME}_batch", f"{_NAME}_length", f"{_NAME}_length"])
        size = write.size(tree, 2, label="size")
        missing = [write.op("Subtract", step.of(length), size) for length in ("length", "total")]
        before = write.op("Concat", [0, 0], *missing, axis=0, label="before")
        rows = write.op("Unsqueeze", tree, axes=[1], label="rows")
        padded = write.op("Pad", rows, before, [0, 0, 0, 0], write.number(0.0, "f32"), label="padded")
        self._padded = {"f32": padded}
        self._joined: dict[tuple[int, int], Handle] = {}

    def add_to(self, site: _Site) -> None:
        rewriter, node = self._rewriter, site.attention.node
        if site.scores is not None:
            rewriter.redirect_uses(site.scores, self._sum(site.scores))
            return
        port = _MASK_PORTS[node.op]
        mask = node.inputs[port] if port < len(node.inputs) else None
        tree = self._of_type(node.source().element_type) if mask is None else self._sum(mask)
        rewriter.set_input(node, port, tree)

    def _of_type(self, kind: str) -> Handle:
        """Return the tree ``[1 or batch, 1, length, sequence]`` in an element type."""
        if kind not in self._padded:
            self._padded[kind] = self._write.op("Convert", self._padded["f32"], to=kind, label=kind)
        return self._padded[kind]

    def _sum(self, mask: Value) -> Handle:
        key, name = (mask.node, mask.port), f"{mask.name}/{_NAME}"
        if key not in self._joined:
            if mask.element_type == "boolean":
                hidden = self._write.number(float("-inf"), "f32")
                self._joined[key] = self._write.op("Select", mask, self._padded["f32"], hidden, name=name)
            else:
                tree = self._of_type(mask.element_type)
                self._joined[key] = self._write.op("Add", mask, tree, name=name)
        return self._joined[key]
