"""The pass `make-static`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.analysis.caches.step_tokens import absorbs_padding, find_step_tokens
from graphpass.analysis.equations.angles import find_last_row
from graphpass.analysis.equations.rotation import find_restart
from graphpass.analysis.lengths.past_order import past_order
from graphpass.analysis.symbolic.folding import fold
from graphpass.engine.conditions import HAS_CACHES, STATELESS
from graphpass.engine.passes import Done, Pass, Skipped
from graphpass.errors import UnsupportedError, UsageError
from graphpass.ir.cache import Cache
from graphpass.ir.graph import Node
from graphpass.ir.inputs import check_positions
from graphpass.ir.model import Model
from graphpass.ir.operators import CASTS, SCATTERS
from graphpass.ir.phase import Phase
from graphpass.ir.rewriter import Handle, Rewriter
from graphpass.ir.types import is_fixed
from graphpass.ir.values import head_of
from graphpass.passes.masks.mask_padding import MaskPadding
from graphpass.passes.shapes.unroll_loops import UnrollLoops

#: Types of folded values. Other numbers are left to the runtime, which rounds in its own way.
_FOLDED = frozenset({"boolean", "i32", "i64"})


@dataclass(frozen=True)
class MakeStatic(Pass[Model]):
    """Fix all shapes: one sequence, and numbers of new tokens and past slots.

    Ahead-of-time compilers take such models alone, NPUs' above all. Two of them, made of one dynamic model, are its
    prefill and its decode model, which share its weights (`graphpass split`).

    The past is a buffer; a run uses its slots that ``attention_mask`` shows. The new tokens follow it, so that the mask
    has ``past + length`` columns. Outputs hold the new positions only: the caller writes them into the buffer
    (`graphpass.runtime.open_pair`). Fewer tokens than ``length`` are padded on the left, and the mask hides padding; so
    the last row is always the last token, and only that row of logits is computed.

    A model must not count slots that the mask hides. One that does is refused: absolute windows
    (`window-from-positions` fixes them), positions from the past's length (`expose-position-ids`). States of linear
    layers are kept from padding as by `mask-padding`; if that cannot be, the model is refused.

    Options:
        length: New tokens a run takes.
        past: Slots of the past.

    Shapes:
        input_ids, position_ids ``[1, length]``; attention_mask ``[1, past + length]``; past ``[1, heads, past,
        head_dim]``, present ``[1, heads, length, head_dim]``, in any order; logits ``[1, 1, vocabulary]``; no dimension
        of any value is left open.

    Before:
        past_key_values.0.key [?, heads, ?, head_dim] -> Concat(., key) = present.0.key [?, heads, ?, head_dim]
    After:
        past_key_values.0.key [1, heads, past, head_dim] -> Concat(., key); key = present.0.key [1, heads, length, ..]

    Raises:
        PreconditionError: GP302, no caches, or stateful.
        UsageError: GP266, ``length`` or ``past`` is not a number of positions, or ``past`` more than the model has.
        UnsupportedError: GP392 the model sees slots that the mask hides, takes one token after a past, or counts
            positions from the first token of each step; GP393 a dimension stays open, or a cache is not appended to by
            a Concat.
    """

    name = "make-static"
    requires = (HAS_CACHES, STATELESS)

    length: int = 1
    past: int = 1024

    def run(self, model: Model) -> Done | Skipped:
        for name, value in (("length", self.length), ("past", self.past)):
            check_positions(name, value)
        if all(isinstance(size, int) for port in model.inputs for size in port.shape or (None,)):
            return Skipped("all inputs are of fixed shapes")
        inventory = analyze_caches(model)
        for cache in inventory.caches:
            if cache.kind not in {"kv", "linear"} or cache.write is None or cache.axes.batch is None:
                raise UnsupportedError("GP392", f"cache {cache.name} of kind {cache.kind} cannot get a fixed shape")
        if (rows := model.analysis(find_last_row)) is not None and rows < self.past:
            raise UsageError(
                "GP266",
                f"expected at most {rows} positions, the rows of the model's tables; got {self.past}",
                f"set the capacity, or past of make-static, to at most {rows}",
            )
        if past_order(model) == "index":
            raise UnsupportedError(
                "GP392",
                "the model counts slots of its caches, also those that the mask hides",
                "run lower-operators before; passes fix more of it in OpenVINO IR: graphpass split --to openvino"
                if model.dialect == "onnx"
                else "run fuse-attention, expose-position-ids and window-from-positions before",
            )
        step_tokens = find_step_tokens(model, inventory)
        if step_tokens.one_by_one and 1 < self.length < self.past:
            raise UnsupportedError(
                "GP392",
                f"after a past the model takes one token, not {self.length}: a window rolls by one column",
                "process prompts in one step, or token by token: graphpass split --chunk 1",
            )
        if self.length > 1:
            _require_counted_positions(model)
        if self.length > 1 and inventory.of_kind("linear"):
            _keep_padding_out(model, inventory.of_kind("linear"))
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
        except RuntimeError as error:  # OpenVINO infers shapes at once
            from graphpass.dialects.openvino.xml import openvino_words

            hint = "feed it token by token: graphpass split --chunk 1" if self.length > 1 else None
            raise UnsupportedError(
                "GP393", f"the model takes no fixed shapes: {openvino_words(error)}", hint
            ) from error
        if model.dialect == "onnx":
            _fold_shapes(model)
            _unroll(model)
            _drop_empty(model)
        _check_static(model)
        Phase(self.length, self.past, inventory.caches).note(model)
        return Done({"caches": len(inventory.caches), "length": self.length, "past": self.past})

    def _sizes(self, read: Node, cache: Cache | None, masked: int) -> list[int | None]:
        """Return sizes, ``None`` for those that stay; the mask covers ``masked`` of the past."""
        columns = masked + self.length if read.name == "attention_mask" else self.length
        shape = read.outputs[0].shape or ()
        # Some models take several positions of a token: [axes, batch, length].
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
                    f"the size of dimension {axis} ({size or '?'}) of cache {cache.name} is not known",
                    "run lower-operators before, which reads it off the weights",
                )
        return sizes


def _require_counted_positions(model: Model) -> None:
    """Raise GP392 if positions count from the first token of each step."""
    node = model.analysis(find_restart)
    if node is not None:
        raise UnsupportedError(
            "GP392",
            f"{node.op} {node.name} is of positions that count from the first token of each step: prompts in chunks, "
            "or with padding, would be rotated otherwise",
            "export it with positions that count on from the past; or feed it token by token: split --chunk 1",
        )


def _keep_padding_out(model: Model, caches: tuple[Cache, ...]) -> None:
    """Let states take in no padding; raise GP392 if one does."""
    if model.dialect == "openvino":
        from graphpass.dialects.openvino.model import OpenVINOModel

        assert isinstance(model, OpenVINOModel)
        MaskPadding().run(model)
        model.mark_edited()
    for cache in caches:
        if absorbs_padding(model, cache):
            raise UnsupportedError(
                "GP392",
                f"padding would enter the state {cache.name}: no attention_mask hides it there",
                "as an IR, made by to-openvino, the model may work; or feed it token by token: split --chunk 1",
            )


def _return_new(rewriter: Rewriter, cache: Cache, present: Node, *, is_copied: bool) -> None:
    """Return what the Concat appends as the present, instead of its result."""
    graph, casts = rewriter.graph, []
    concat = graph.producer(present.source())
    while concat.op in CASTS:
        casts.append(concat)
        concat = graph.producer(concat.source())
    if concat.op != "Concat" or len(concat.inputs) != 2:
        raise UnsupportedError("GP393", f"cache {cache.name} is not appended to by a Concat, but {concat.op}")
    new: Handle = concat.source(1)
    for place, cast in enumerate(reversed(casts)):
        new = rewriter.clone(cast, {0: new}, f"{present.name}/new/{place}")
    if is_copied:
        new = rewriter.op("Identity", new, name=f"{present.name}/new")
    rewriter.redirect(present, 0, new)


def _keep_last(rewriter: Rewriter, logits: Node) -> None:
    """Compute logits of the last position only: cut before the product with the vocabulary."""
    node = head_of(rewriter.graph, logits) or logits
    source = node.source()
    if source.rank != 3:
        raise UnsupportedError("GP393", f"{source.name}, the source of the logits, has no axis of positions")
    rewriter.redirect(node, 0, rewriter.under("last_position").slice(source, -1, None, 1, label="hidden"))


def _fold_shapes(model: Model) -> None:
    """Fold whole numbers of constants and known sizes, so that shapes depend on no input."""
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
    """Write loops over the step's tokens as their iterations."""
    from graphpass.dialects.onnx.model import OnnxModel

    assert isinstance(model, OnnxModel)
    if UnrollLoops().run(model).statistics:
        model.mark_edited()
        _fold_shapes(model)


def _drop_empty(model: Model) -> None:
    """Drop scatters of no elements, and empty operands of Concats, as of heads without rotation."""
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
    """Check that all sizes are known (else GP393), and declare those of outputs."""
    rewriter = model.rewriter()
    for node in model.graph.nodes:
        for value in node.outputs:
            if value.name and not is_fixed(value.shape):
                raise UnsupportedError(
                    "GP393",
                    f"the size of {value.name}, an output of {node.called}, is not static",
                    "its size depends on values, not on the shapes of inputs; for experts, convert to IR, where each "
                    "computes all tokens: graphpass split --to openvino",
                )
    for result in model.graph.of_op("Result"):
        rewriter.resize_port(result, [size for size in result.source().shape or () if isinstance(size, int)])
    rewriter.finish()
