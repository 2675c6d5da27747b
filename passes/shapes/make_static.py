"""The pass `make-static`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.analysis.caches.step_tokens import StepTokens, absorbs_padding, find_step_tokens
from graphpass.analysis.equations.angles import find_last_row
from graphpass.analysis.equations.rotation import find_restart
from graphpass.analysis.lengths.past_order import past_order
from graphpass.analysis.symbolic.folding import fold
from graphpass.engine.conditions import HAS_CACHES, STATELESS
from graphpass.engine.passes import Done, Pass, Skipped
from graphpass.errors import UnsupportedError, UsageError
from graphpass.ir.cache import Cache, Inventory
from graphpass.ir.graph import Node
from graphpass.ir.inputs import check_positions
from graphpass.ir.model import Model
from graphpass.ir.operators import CASTS, SCATTERS
from graphpass.ir.phase import Phase
from graphpass.ir.rewriter import Rewriter
from graphpass.ir.types import is_fixed
from graphpass.ir.values import head_of
from graphpass.ir.writer import Handle
from graphpass.passes.masks.mask_padding import MaskPadding
from graphpass.passes.shapes.unroll_loops import UnrollLoops

#: Types of folded values. Floating-point values are left to the runtime, whose rounding may differ.
_FOLDED = frozenset({"boolean", "i32", "i64"})


@dataclass(frozen=True)
class MakeStatic(Pass[Model]):
    """Make all shapes static: batch size 1, fixed numbers of new tokens and past slots.

    Ahead-of-time compilers, above all those of NPUs, require static models. `graphpass split` makes a prefill and a
    decode model from one dynamic model; both share its weights.

    - Past: a buffer, of which a step uses the slots that ``attention_mask`` counts. New tokens follow the buffer,
      and the mask has ``past + length`` columns.
    - Present: outputs have only the new positions; the caller writes them into the buffer
      (`graphpass.runtime.open_pair`).
    - Padding: fewer tokens than ``length`` are padded on the left, and the mask excludes the padding. The last
      position is always a token, and only its logits are computed.

    A model that counts excluded slots is refused: windows over slots (`window-from-positions` rewrites them), positions
    from the past's length (`expose-position-ids`). Padding is excluded from states of linear layers as in
    `mask-padding`; if that is not possible, the model is refused.

    Options:
        length: Number of new tokens of a step.
        past: Number of slots of the past.

    Shapes:
        input_ids, position_ids ``[1, length]``; attention_mask ``[1, past + length]``; past ``[1, heads, past,
        head_dim]``, present ``[1, heads, length, head_dim]``, in any order; logits ``[1, 1, vocabulary]``; all
        dimensions of all values are static.

    Before:
        past_key_values.0.key [?, heads, ?, head_dim] -> Concat(., key) = present.0.key [?, heads, ?, head_dim]
    After:
        past_key_values.0.key [1, heads, past, head_dim] -> Concat(., key); key = present.0.key [1, heads, length, ..]

    Raises:
        PreconditionError: GP302, no caches, or a stateful model.
        UsageError: GP266, ``length`` or ``past`` is out of range, or ``past`` exceeds the rows of the model's tables.
        UnsupportedError: GP392, the model counts slots that the mask excludes, accepts only one token after a past, or
            counts positions from the first token of each step; GP393, a dimension is still dynamic, or a cache is not
            appended to by a Concat.
    """

    name = "make-static"
    requires = (HAS_CACHES, STATELESS)

    length: int = 1
    past: int = 1024

    def run(self, model: Model) -> Done | Skipped:
        for name, value in (("length", self.length), ("past", self.past)):
            check_positions(name, value)
        if all(isinstance(size, int) for port in model.inputs for size in port.shape or (None,)):
            return Skipped("all inputs have static shapes")
        inventory = analyze_caches(model)
        step_tokens = find_step_tokens(model, inventory)
        self._require_supported(model, inventory, step_tokens)
        if self.length > 1:
            _require_counted_positions(model)
        if self.length > 1 and inventory.of_kind("linear"):
            _exclude_padding(model, inventory.of_kind("linear"))
        rewriter = model.rewriter()
        for cache in inventory.of_kind("kv"):
            _return_new(rewriter, cache, model.graph.writes[cache.write], is_copied=model.dialect == "onnx")
        outputs = [port.name for port in model.outputs]
        _keep_last(rewriter, model.graph.writes["logits" if "logits" in outputs else outputs[0]])
        caches = {cache.read: cache for cache in inventory.caches}
        masks_new = inventory.kind == "linear" or step_tokens.masks_new_tokens
        for name, read in model.graph.reads.items():
            rewriter.resize_port(read, self._sizes(read, caches.get(name), 0 if masks_new else self.past))
        rewriter.forget_shapes()
        try:
            rewriter.finish()
        except RuntimeError as error:  # OpenVINO infers shapes when a port is resized
            from graphpass.dialects.openvino.xml import openvino_words

            hint = "process prompts token by token: graphpass split --chunk 1" if self.length > 1 else None
            raise UnsupportedError(
                "GP393", f"the model does not support static shapes: {openvino_words(error)}", hint
            ) from error
        if model.dialect == "onnx":
            _fold_shapes(model)
            _unroll(model)
            _drop_empty(model)
        _check_static(model)
        Phase(self.length, self.past, inventory.caches).note(model)
        return Done({"caches": len(inventory.caches), "length": self.length, "past": self.past})

    def _require_supported(self, model: Model, inventory: Inventory, step_tokens: StepTokens) -> None:
        """Check that the caches, and the tokens of a step, can have static shapes.

        Raises:
            UnsupportedError: GP392, a cache or the tokens cannot have a static shape.
            UsageError: GP266, ``past`` exceeds the rows of the model's tables.
        """
        for cache in inventory.caches:
            if cache.kind not in {"kv", "linear"} or cache.write is None or cache.axes.batch is None:
                raise UnsupportedError("GP392", f"cache {cache.name} of kind {cache.kind} cannot have a static shape")
        if (rows := model.analysis(find_last_row)) is not None and rows < self.past:
            raise UsageError(
                "GP266",
                f"expected at most {rows} positions, the rows of the model's tables; got {self.past}",
                f"set the capacity, or past of make-static, to at most {rows}",
            )
        if past_order(model) == "index":
            raise UnsupportedError(
                "GP392",
                "the model counts slots of its caches that the mask excludes",
                "run lower-operators before make-static, or use OpenVINO IR, with more passes: "
                "graphpass split --to openvino"
                if model.dialect == "onnx"
                else "run fuse-attention, expose-position-ids and window-from-positions before make-static",
            )
        if step_tokens.one_by_one and 1 < self.length < self.past:
            raise UnsupportedError(
                "GP392",
                f"after a past the model accepts 1 token, got {self.length}: its window moves by one column a step",
                "process prompts in one step, or token by token: graphpass split --chunk 1",
            )

    def _sizes(self, read: Node, cache: Cache | None, masked: int) -> list[int | None]:
        """Return new dimensions, ``None`` if unchanged; the mask covers ``masked`` slots of the past.

        Raises:
            UnsupportedError: GP393, a dimension of the cache is unknown.
        """
        columns = masked + self.length if read.name == "attention_mask" else self.length
        shape = read.outputs[0].shape or ()
        # Some models read several positions per token: [axes, batch, length].
        batch = len(shape) - 2 if read.name == "position_ids" else 0
        sizes: list[int | None] = []
        for axis, size in enumerate(shape):
            if isinstance(size, int):
                sizes.append(None)
            elif cache is None:
                sizes.append(1 if axis == batch else columns)
            elif axis in {cache.axes.batch, cache.axes.sequence}:
                sizes.append(1 if axis == cache.axes.batch else self.past)
            else:
                raise UnsupportedError(
                    "GP393",
                    f"dimension {axis} ({size or '?'}) of cache {cache.name} is unknown",
                    "run lower-operators before make-static, which derives it from the weights",
                )
        return sizes


def _require_counted_positions(model: Model) -> None:
    """Check that positions do not count from the first token of each step.

    Raises:
        UnsupportedError: GP392, positions count from there.
    """
    node = model.analysis(find_restart)
    if node is not None:
        raise UnsupportedError(
            "GP392",
            f"{node.op} {node.name} reads positions that count from the first token of each step, which are wrong for "
            "prompts in chunks or with padding",
            "export the model with positions that include the past, or process prompts token by token: split --chunk 1",
        )


def _exclude_padding(model: Model, caches: tuple[Cache, ...]) -> None:
    """Exclude padding from linear caches.

    Raises:
        UnsupportedError: GP392, attention_mask does not exclude it from one.
    """
    if model.dialect == "openvino":
        from graphpass.dialects.openvino.model import OpenVINOModel

        assert isinstance(model, OpenVINOModel)
        MaskPadding().run(model)
        model.mark_edited()
    for cache in caches:
        if absorbs_padding(model, cache):
            raise UnsupportedError(
                "GP392",
                f"padding would update cache {cache.name}: attention_mask does not exclude it there",
                "try OpenVINO IR, after to-openvino, or process prompts token by token: split --chunk 1",
            )


def _return_new(rewriter: Rewriter, cache: Cache, present: Node, *, is_copied: bool) -> None:
    """Return the new positions as the present, instead of the result of the Concat.

    Raises:
        UnsupportedError: GP393, the present is not a Concat of two inputs.
    """
    graph, casts = rewriter.graph, []
    concat = graph.producer(present.source())
    while concat.op in CASTS:
        casts.append(concat)
        concat = graph.producer(concat.source())
    if concat.op != "Concat" or len(concat.inputs) != 2:
        raise UnsupportedError(
            "GP393", f"cache {cache.name} is appended to by {concat.op}, not by a Concat of two inputs"
        )
    new: Handle = concat.source(1)
    for index, cast in enumerate(reversed(casts)):
        new = rewriter.clone(cast, {0: new}, f"{present.name}/new/{index}")
    if is_copied:
        new = rewriter.op("Identity", new, name=f"{present.name}/new")
    rewriter.redirect(present, 0, new)


def _keep_last(rewriter: Rewriter, logits: Node) -> None:
    """Compute only logits of the last position, by a slice before the head.

    Raises:
        UnsupportedError: GP393, the source of the logits has no axis of positions.
    """
    node = head_of(rewriter.graph, logits) or logits
    source = node.source()
    if source.rank != 3:
        raise UnsupportedError("GP393", f"{source.name}, the source of the logits, has no axis of positions")
    rewriter.redirect(node, 0, rewriter.under("last_position").slice(source, -1, None, 1, label="hidden"))


def _fold_shapes(model: Model) -> None:
    """Fold integers computed from constants and known sizes, so that shapes are static."""
    changed = True
    while changed:
        graph, rewriter = model.graph, model.rewriter()
        known = {
            value: constant
            for node in graph.nodes
            for value in (node.outputs if node.op != "Constant" else ())
            if value.element_type in _FOLDED and (constant := fold(graph, value)) is not None
        }
        for value, constant in known.items():
            if any(not use.node.outputs or not set(use.node.outputs) <= known.keys() for use in graph.uses(value)):
                rewriter.replace(value, rewriter.constant(numpy.array(constant), "", f"{value.name}/folded"))
        changed = rewriter.finish()


def _unroll(model: Model) -> None:
    """Unroll loops over the step's tokens."""
    from graphpass.dialects.onnx.model import OnnxModel

    assert isinstance(model, OnnxModel)
    if UnrollLoops().run(model).statistics:
        model.mark_edited()
        _fold_shapes(model)


def _drop_empty(model: Model) -> None:
    """Drop scatters of no elements, and empty operands of Concats, as in heads without rotation."""
    graph, rewriter = model.graph, model.rewriter()
    for node in graph.of_op(*SCATTERS):
        if 0 in (node.source(2).shape or ()):
            rewriter.redirect_uses(node.outputs[0], rewriter.native(node.source()))
    for node in graph.of_op("Concat"):
        kept = [value for value in node.inputs if value is not None and 0 not in (value.shape or ())]
        if len(kept) == len(node.inputs) or not kept:
            continue
        joined = rewriter.native(kept[0])
        if len(kept) > 1:
            joined = rewriter.op("Concat", *kept, axis=node.attributes["axis"], name=f"{node.name}/filled")
        rewriter.redirect_uses(node.outputs[0], joined)
    rewriter.finish()


def _check_static(model: Model) -> None:
    """Check that all shapes are static, and declare those of outputs.

    Raises:
        UnsupportedError: GP393, one is not.
    """
    rewriter = model.rewriter()
    for node in model.graph.nodes:
        for value in node.outputs:
            if value.name and not is_fixed(value.shape):
                raise UnsupportedError(
                    "GP393",
                    f"the size of {value.name}, an output of {node.called}, is not static",
                    "it depends on values of inputs, not on their shapes; if it belongs to an expert, use OpenVINO IR, "
                    "where each expert computes all tokens: graphpass split --to openvino",
                )
    for result in model.graph.of_op("Result"):
        rewriter.resize_port(result, [size for size in result.source().shape or () if isinstance(size, int)])
    rewriter.finish()
