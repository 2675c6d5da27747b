"""The pass `fuse-group-query-attention`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal

from graphpass.analysis.attention.mask import AttentionMask
from graphpass.analysis.caches.masks import find_step_lengths
from graphpass.analysis.caches.step_lengths import POSITIONS
from graphpass.analysis.equations.grouped_query import GroupedQuery, find_grouped_queries
from graphpass.analysis.equations.kernel_features import FusedFeature, why_left
from graphpass.analysis.equations.rotation import Rotation
from graphpass.analysis.symbolic.equal_sizes import dimensions
from graphpass.analysis.symbolic.sizes import infer_sizes
from graphpass.dialects.onnx.model import OnnxModel
from graphpass.engine.conditions import OPSET_13
from graphpass.engine.passes import Done, Pass
from graphpass.ir.graph import Node, Use, Value
from graphpass.ir.inputs import check_positions
from graphpass.ir.miss import Miss
from graphpass.ir.operators import MOVES, NORMS
from graphpass.ir.rewriter import Rewriter
from graphpass.ir.values import fixed_size, is_copy
from graphpass.ir.writer import Handle, Operand, Writer
from graphpass.passes.attention.merged_heads import merged_heads
from graphpass.passes.attention.shared_operands import SharedOperands

_DOMAIN = "com.microsoft"

Padding = Literal["any", "right"]


@dataclass(frozen=True)
class FuseGroupQueryAttention(Pass[OnnxModel]):
    """Replace decomposed attention and its cache by GroupQueryAttention of ONNX Runtime.

    The operator appends to the cache itself, in place if past and present share a buffer. It does not expand grouped
    heads, and does not materialize the scores of a whole prompt. Grouped and plain heads, scales, soft caps, attention
    sinks, causal masks and sliding windows become attributes and inputs; a rotary embedding becomes a rotary table of
    ``context`` positions.

    A mask becomes attributes only if the structural match and the numerical check agree: it consists only of
    comparisons of positions and of ``attention_mask``, and for chosen lengths it masks the same keys as the attributes.
    Any other mask, such as ALiBi, stays in the graph and is added as a bias. Attention that the operator cannot express
    is unchanged and reported.

    The operator refuses several new tokens after a past in batches larger than 1: sessions feed these tokens one by
    one, unless `count-new-tokens` adds their number.

    Options:
        padding: With ``any`` the padding mask is added as a bias: padding may be left, right or between tokens, and
            positions are read from ``position_ids``. With ``right`` the operator counts the tokens of each row, as in
            models of onnxruntime-genai's builder: padding follows the tokens, later tokens overwrite it, positions and
            windows count tokens, and the input ``position_ids`` is removed. Left padding is then computed incorrectly.
            Compared with ``right``, a prompt of 8192 tokens takes 1.09 times as long with ``any``, a step after it
            1.01 times.
        context: Number of positions in rotary tables. Without it rotary embeddings are unchanged.
        lacks: Features that the provider's kernel does not have. Attention that requires one of them is unchanged;
            without ``rotation``, query and key are rotated before the operator.
        pad_values: Pad values with zeros to the size of keys if they are smaller, as in multi-head latent attention
            (DeepSeek). The cache of values contains the zeros.

    Shapes:
        query, key, value ``[batch, length, heads * head_dim]``; past and present ``[batch, kv_heads, sequence,
        head_dim]``; bias ``[1 or batch, 1 or heads, length, sequence]``; tables ``[context, rotated / 2]``

    Before:
        Concat(past, rotated key) -> Unsqueeze -> Expand -> Reshape -> MatMul(rotated query, .) * scale -> Add(mask)
        -> Softmax -> MatMul(., copies of Concat(past, value)) -> Transpose -> Reshape
    After:
        right: GroupQueryAttention(query, key, value, past key, past value, sum of attention_mask - 1, total, cos, sin)
        any: GroupQueryAttention(RotaryEmbedding(query), RotaryEmbedding(key), value, past key, past value, total - 1,
        total, bias of attention_mask)

    Raises:
        UnsupportedError: GP363, the model has no input with the new tokens.
        UsageError: GP266, ``context`` is out of range.
    """

    name = "fuse-group-query-attention"
    dialect = "onnx"
    only_for = (OPSET_13,)

    padding: Padding = "any"
    context: int | None = None
    lacks: tuple[FusedFeature, ...] = ()
    pad_values: bool = False

    def __post_init__(self) -> None:
        """Check the range of ``context``."""
        if self.context is not None:
            check_positions("context", self.context)

    def run(self, model: OnnxModel) -> Done:
        groups = model.analysis(find_grouped_queries)
        groups = {name: self._allowed(model, group) for name, group in groups.items()}
        fused = [group for group in groups.values() if isinstance(group, GroupedQuery)]
        notes = [
            f"attention at {name} stays unchanged: {group}" for name, group in groups.items() if isinstance(group, Miss)
        ]
        if fused:
            rewriter = model.rewriter()
            rotates = "rotation" not in self.lacks
            fusion = _Fusion(model, rewriter, self.padding, self.context, rotates)
            for group in fused:
                fusion.read_lengths_of_inputs(group)
            for group in fused:
                fusion.fuse(group)
            rewriter.finish()
            positions = model.graph.parameters.get(POSITIONS)
            if positions is not None and not model.graph.uses(positions):
                rewriter = model.rewriter()
                rewriter.drop_input(POSITIONS)
                rewriter.finish()
            notes += dict.fromkeys(fusion.notes)
        return Done({"attention fused": len(fused), "attention left": len(groups) - len(fused)}, tuple(notes))

    def _allowed(self, model: OnnxModel, group: GroupedQuery | Miss) -> GroupedQuery | Miss:
        if isinstance(group, Miss):
            return group
        mask = group.mask
        if self.padding == "any" and isinstance(mask, AttentionMask) and mask.window_of_tokens is not None:
            # The operator's window counts slots, and padding between tokens occupies slots.
            counted = f"its window of {mask.window_of_tokens} counts tokens, not slots of the cache"
            group = replace(group, mask=Miss(group.attention.node, counted))
        if (reason := why_left(group, self.lacks, any_padding=self.padding == "any")) is not None:
            return reason
        if not self.pad_values and (reason := group.wants_padding) is not None:
            return reason
        return _mask_of_keys(model, group) or group


class _Fusion:
    """Writes one operator per layer."""

    def __init__(
        self, model: OnnxModel, rewriter: Rewriter, padding: Padding, context: int | None, rotates: bool
    ) -> None:
        self._model, self._rewriter = model, rewriter
        self._padding, self._context, self._rotates = padding, context, rotates
        self._shared = SharedOperands(model, rewriter)
        self._lengths = self._shared.lengths
        self.notes = self._shared.notes

    def read_lengths_of_inputs(self, group: GroupedQuery) -> None:
        """Redirect readers of the shapes of keys and values to lengths of the inputs.

        The past may be a buffer longer than the sequence, and the expanded heads are removed.
        """
        sizes, graph = self._model.analysis(infer_sizes), self._rewriter.graph
        forms = (*group.attention.key_forms, *group.attention.value_forms)
        read = [value for cache in (group.key, group.value) for value in (cache.past, cache.whole, *cache.copies)]
        # A dict, because names of new nodes depend on the order.
        values = dict.fromkeys([*read, *forms])

        def moved(use: Use) -> tuple[Value, ...]:
            return use.node.outputs if use.node.op in MOVES or is_copy(use.node) else ()

        for use in graph.forward(reversed(values), moved):
            content = sizes.content(use.node.outputs[0]) if use.node.op == "ShapeOf" else None
            if content is not None and self._lengths.knows(content):
                self._rewriter.replace(use.node.outputs[0], self._lengths.vector(content))

    def fuse(self, group: GroupedQuery) -> None:
        """Write the operator in place of ``group``."""
        write, kind = self._rewriter.under(group.attention.node.name), group.key.past.element_type
        attributes: dict[str, Any] = {"num_heads": group.heads, "kv_num_heads": group.key_heads, "scale": group.scale}
        if group.softcap:
            attributes["softcap"] = group.softcap
        counts_tokens = isinstance(group.mask, AttentionMask) and self._padding == "right"
        bias = None
        if isinstance(group.mask, AttentionMask):
            attributes |= {"local_window_size": group.mask.window} if group.mask.window is not None else {}
            if group.mask.is_padded and not counts_tokens:
                bias = self._shared.padding_bias(kind)
        else:
            masks, name = group.attention.masks, f"{group.attention.node.name}/mask"
            bias, attributes["causal"] = self._shared.bias(masks, kind, group.heads, name), 0
            self.notes.append(f"attention at {group.attention.node.name} reads its mask as a bias: {group.mask}")
        query, key, tables = self._rotated(group, write, counts_tokens)
        if tables:
            attributes["do_rotary"] = 1
            attributes |= (
                {"rotary_interleaved": 1} if group.rotations is not None and group.rotations[0].interleaved else {}
            )
        inputs = [
            query,
            key,
            self._value(group, write),
            group.key.past,
            group.value.past,
            self._shared.counts() if counts_tokens else self._shared.lasts(),
            self._shared.total(),
            *(tables or (None, None)),
            None,
            bias,
            None if group.attention.sink is None else self._sink(write, group, kind),
        ]
        while inputs[-1] is None:
            inputs.pop()
        results = write.outputs(
            "GroupQueryAttention", *inputs, count=3, label="GroupQueryAttention", domain=_DOMAIN, **attributes
        )
        self._replace_result(write, group, results[0])
        self._rewriter.replace(group.key.whole, results[1])
        self._rewriter.replace(group.value.whole, results[2])

    def _value(self, group: GroupedQuery, write: Writer) -> Handle:
        """Return new values ``[batch, length, heads * head_dim]``, padded with zeros if they are smaller."""
        if group.value_dim == group.head_dim:
            return self._flat(write, group.value.new, group.key_heads, group.head_dim)
        kind = group.value.past.element_type
        ends = [0, 0, 0, group.head_dim - group.value_dim]
        padded = write.op("Pad", group.value.new, [0, 0, 0, 0], ends, write.number(0.0, kind), label="value_padded")
        rows = write.op("Transpose", padded, order=[0, 2, 1, 3], label="value_rows")
        graph, cache = self._rewriter.graph, group.value.cache
        for port in (graph.reads[cache.read], graph.writes[cache.write]):
            self._rewriter.resize_port(port, [None, None, None, group.head_dim])
        return write.op("Reshape", rows, [0, 0, group.key_heads * group.head_dim], label="value_flat")

    def _sink(self, write: Writer, group: GroupedQuery, kind: str) -> Handle:
        sink = group.attention.sink
        flat = write.op("Reshape", sink, [-1], label="sink")
        if group.attention.sink_is_negative:
            flat = write.op("Negative", flat, label="sink_positive")
        is_same = sink is None or sink.element_type == kind
        return flat if is_same else write.op("Convert", flat, to=kind, label="sink_converted")

    def _rotated(
        self, group: GroupedQuery, write: Writer, counts_tokens: bool
    ) -> tuple[Handle, Handle, tuple[Handle, Handle] | None]:
        """Return query and key ``[batch, length, heads * head_dim]``, and rotary tables for the operator."""
        tables = self._shared.tables(group.rotations[0], self._context) if group.rotations is not None else None
        if group.rotations is None or tables is None:
            key = self._flat(write, group.key.new, group.key_heads, group.head_dim)
            return self._flat(write, group.query, group.heads, group.head_dim), key, None
        flat = [
            self._flat(write, part.source, part.heads, part.head_dim, heads_last=part.heads_last)
            for part in group.rotations
        ]
        counts_slots = group.rotations[0].counts_slots
        if self._rotates and group.rotates_inside and (counts_tokens or counts_slots):
            return flat[0], flat[1], tables
        positions = self._shared.positions(counts_slots, counts_tokens)
        rotated = [
            self._rotation(write, part, rotation, tables, positions, f"rotated_{label}")
            for part, rotation, label in zip(flat, group.rotations, ("query", "key"), strict=True)
        ]
        return rotated[0], rotated[1], None

    def _rotation(
        self,
        write: Writer,
        value: Handle,
        rotation: Rotation,
        tables: tuple[Handle, Handle],
        positions: Operand,
        label: str,
    ) -> Handle:
        attributes = {"interleaved": int(rotation.interleaved), "num_heads": rotation.heads}
        if rotation.size < rotation.head_dim:
            attributes["rotary_embedding_dim"] = rotation.size
        operands = [value, positions, *tables]
        return write.outputs("RotaryEmbedding", *operands, count=1, label=label, domain=_DOMAIN, **attributes)[0]

    def _flat(self, write: Writer, value: Value, heads: int, size: int, *, heads_last: bool = False) -> Handle:
        """Return ``[batch, heads, length, size]`` as ``[batch, length, heads * size]``."""
        rows: Handle = value if heads_last else self._rows(write, value)
        split = self._rewriter.graph.producer(rows) if isinstance(rows, Value) else None
        source = split.input(0) if split is not None and split.op == "Reshape" else None
        if source is not None and source.rank == 3 and fixed_size(source, 2) == heads * size:
            return self._rewriter.native(source)
        return write.op("Reshape", rows, [0, 0, heads * size])

    def _rows(self, write: Writer, value: Value) -> Handle:
        """Return ``[batch, heads, length, size]`` as ``[batch, length, heads, size]``."""
        graph = self._rewriter.graph
        node = graph.producer(value)
        if _splits_heads(node):
            return node.source()
        # A norm over the last axis commutes with the transposition of heads and positions (gemma3).
        if node.op in NORMS and _splits_heads(graph.producer(node.source())):
            return write.clone(node, graph.producer(node.source()).source(), *node.inputs[1:])
        return write.op("Transpose", value, order=[0, 2, 1, 3])

    def _replace_result(self, write: Writer, group: GroupedQuery, result: Handle) -> None:
        """Replace the attention's output by ``result``, ``[batch, length, heads * head_dim]``."""
        output = group.attention.output
        merged = merged_heads(self._model, group.attention.output, group.heads * group.value_dim)
        if output.element_type != group.key.past.element_type:
            result = write.op("Convert", result, to=output.element_type, label="widened")
        split = None
        if merged is None or group.value_dim < group.head_dim:
            split = write.op("Reshape", result, [0, 0, group.heads, group.head_dim], label="split")
        if split is not None and group.value_dim < group.head_dim:
            split = write.slice(split, 0, group.value_dim, 3, label="unpadded")
            result = write.op("Reshape", split, [0, 0, group.heads * group.value_dim], label="joined")
        if merged is not None:
            self._rewriter.replace(merged, result)
            return
        rows = write.op("Transpose", split, order=[0, 2, 1, 3], label="by_head")
        if output.rank == 3:
            shape = write.op("Concat", [-1], self._lengths.of("length"), [group.value_dim], axis=0, label="shape")
            rows = write.op("Reshape", rows, shape, label="merged")
        self._rewriter.replace(output, rows)


def _mask_of_keys(model: OnnxModel, group: GroupedQuery) -> Miss | None:
    """Return the reason if a bias computed from the masks would create a cycle."""
    if isinstance(group.mask, AttentionMask):
        return None
    graph, sizes, lengths = model.graph, model.analysis(infer_sizes), model.analysis(find_step_lengths)
    made = {group.key.whole.node, group.value.whole.node}

    def further(node: Node) -> Iterable[Value | None]:
        content = sizes.content(node.outputs[0]) if node.op == "ShapeOf" else None
        is_length = content is not None and all(term in lengths for size in content for term, _ in dimensions(size))
        # Nodes are in execution order: nodes before the keys do not depend on them.
        return () if is_length or node.index < min(made) else node.inputs

    for node in graph.backward((mask.value for mask in group.attention.masks), further):
        if node.index in made:
            reason = f"its mask reads the keys at {node.name}, whose length does not follow from the inputs' shapes"
            return Miss(group.attention.node, reason)
    return None


def _splits_heads(node: Node) -> bool:
    return node.op == "Transpose" and node.attributes.get("order") == (0, 2, 1, 3)
