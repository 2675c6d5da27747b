"""The pass `unpage-caches`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from graphpass.dialects.attributes import text_of
from graphpass.dialects.onnx.model import OnnxModel
from graphpass.engine.passes import Done, Pass, Skipped
from graphpass.errors import UnsupportedError
from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.inputs import BATCH_NAME, token_input
from graphpass.ir.operators import NORM_WEIGHTS, PAGED_NORM_WEIGHTS
from graphpass.ir.rewriter import Rewriter
from graphpass.ir.types import Dimension
from graphpass.ir.writer import Handle, Writer

#: Inputs of PagedAttention (schema of ONNX Runtime 1.32).
_OPERANDS, _CACHES, _LENGTHS = range(3), (3, 4), (5, 6, 7)
_ANGLES, _SLOTS, _SINK, _SCALES, _METADATA = (8, 9), 10, 11, (14, 15), 16

#: Inputs of GroupQueryAttention, in the order of the same inputs of PagedAttention.
_SINK_OF_GROUPS = 11

#: Attributes that both operators have, with the same meaning.
_COMMON = frozenset(
    {"do_rotary", "kv_num_heads", "local_window_size", "num_heads", "qk_norm_epsilon", "rotary_interleaved", "scale",
     "softcap"}
)  # fmt: skip

#: Values of further attributes at which they have no effect.
_WITHOUT_EFFECT: dict[str, object] = {
    "is_causal": 1,
    "k_quant_type": "NONE",
    "v_quant_type": "NONE",
    "rotary_offset": 0,
}


@dataclass(frozen=True)
class UnpageCaches(Pass[OnnxModel]):
    """Replace packed tokens and caches of blocks by rows of a batch and growing caches.

    Models with com.microsoft PagedAttention run on GPUs only, in an engine that packs the tokens of all sequences into
    one axis and manages blocks of caches (``use_paged_attention=true`` of the onnxruntime-genai builder). Other
    runtimes feed rows of a batch, with a cache for each.

    Shapes:
        tokens ``[num_tokens]``, afterwards ``[batch, length]``; caches ``[blocks, block_size, heads, head_dim]``,
        afterwards ``[batch, heads, past, head_dim]``; logits ``[num_tokens, vocabulary]``, afterwards ``[batch, length,
        vocabulary]``. attention_mask i64 ``[batch, total]`` is a new input, which replaces the lengths and the table of
        blocks.

    Before:
        PagedAttention(query, key, value, key blocks, value blocks, cumulative lengths, past lengths, block table, ..)
    After:
        GroupQueryAttention(query, key, value, past key, past value, sum of attention_mask - 1, total, ..)

    Raises:
        UnsupportedError: GP341, an option of PagedAttention that GroupQueryAttention does not have, or another operator
            that reads lengths or blocks.
    """

    name = "unpage-caches"
    dialect = "onnx"

    def run(self, model: OnnxModel) -> Done | Skipped:
        nodes = list(model.graph.of_op("PagedAttention"))
        if not nodes:
            return Skipped("the model has no PagedAttention")
        for node in nodes:
            if (reason := next(_differences(model.graph, node), None)) is not None:
                raise UnsupportedError("GP341", f"PagedAttention {node.name} cannot be lowered: {reason}")
        _Unpaging(model, nodes).write()
        return Done({"caches unpaged": 2 * len(nodes)})


def _differences(graph: Graph, node: Node) -> Iterator[str]:
    """Yield the reasons for which GroupQueryAttention cannot replace a PagedAttention."""
    for name, value in node.attributes.items():
        text = text_of(value) if isinstance(value, bytes) else value
        if name not in _COMMON and text != _WITHOUT_EFFECT.get(name):
            yield f"it has {name} = {text}"
    for port in (_SLOTS, *_SCALES):
        if (value := node.input(port)) is not None:
            yield f"it reads {value.name}, which {'maps slots' if port == _SLOTS else 'quantizes its caches'}"
    for port in _CACHES:
        if graph.producer(node.source(port)).op != "Parameter":
            yield f"{node.source(port).name} is not an input of the model"
        if not isinstance((node.source(port).shape or (None,))[-1], int):
            yield "its head_dim is unknown"
    for value in node.present(_LENGTHS):
        users = [use.node for use in graph.uses(value) if use.node.op != "PagedAttention"]
        if users or graph.producer(value).op != "Parameter":
            yield f"{(users or [graph.producer(value)])[0].name} computes from its lengths or blocks"


class _Unpaging:
    def __init__(self, model: OnnxModel, nodes: list[Node]) -> None:
        self._graph, self._nodes = model.graph, nodes
        self._rewriter: Rewriter = model.rewriter()
        tokens = token_input(self._graph)
        if tokens is None or not tokens.shape:
            raise UnsupportedError("GP341", "PagedAttention cannot be lowered: the model has no input of tokens")
        self._tokens, self._packed = tokens, tokens.shape[0]

    def write(self) -> None:
        """Rewrite inputs, attention and outputs."""
        graph, rewriter = self._graph, self._rewriter
        used = [value for node in self._nodes for value in node.present((*_LENGTHS, _METADATA))]
        caches = [
            (graph.producer(node.source(port)), _result(graph, node.outputs[output]))
            for node in self._nodes
            for port, output in zip(_CACHES, (1, 2), strict=True)
        ]
        packed = [value for value in graph.parameters.values() if self._packed in (value.shape or ())]
        results = [node for node in graph.of_op("Result") if self._packed in (node.source().shape or ())]
        dropped = {value.node: graph.producer(value) for value in (*used, *packed)}
        rewriter.drop([*dropped.values(), *(port for pair in caches for port in pair), *results])
        write = rewriter.under("unpaged")
        rows = {value.name: self._add_input(write, value) for value in packed}
        mask = rewriter.input("attention_mask", "i64", [BATCH_NAME, "total_sequence_length"])
        count = write.op("Subtract", write.op("ReduceSum", mask, axes=[1], keep=False), [1])
        lengths = [
            write.convert(count, "i32", "last_token"),
            write.convert(write.op("Squeeze", write.size(mask, 1), axes=[0]), "i32", "total"),
        ]
        leading = write.op("Concat", *(write.size(rows[self._tokens.name], axis) for axis in (0, 1)), axis=0)
        for node, ports in zip(self._nodes, zip(caches[::2], caches[1::2], strict=True), strict=True):
            self._attend(node, ports, lengths, leading)
        for node in results:
            source = node.source()
            sizes = [BATCH_NAME, "sequence_length", *(source.shape or ())[1:]]
            rewriter.output(node.name, self._in_rows(write, source, leading), source.element_type, sizes)
        rewriter.finish()

    def _add_input(self, write: Writer, value: Value) -> Handle:
        """Replace an input of packed tokens by an input of rows.

        Returns:
            The new input.
        """
        shape: list[Dimension] = list(value.shape or ())
        axis = shape.index(self._packed)
        shape[axis : axis + 1] = [BATCH_NAME, "sequence_length"]
        new = self._rewriter.input(value.name, value.element_type, shape)
        target = [0] * axis + [-1] + [size if isinstance(size, int) else 0 for size in shape[axis + 2 :]]
        self._rewriter.redirect_uses(value, write.op("Reshape", new, target))
        return new

    @staticmethod
    def _in_rows(write: Writer, value: Value | None, leading: Handle) -> Handle:
        """Return packed tokens as rows of a batch; ``None`` for an omitted input."""
        if value is None:
            return None
        sizes = [size if isinstance(size, int) else -1 for size in (value.shape or (None, None))[1:]]
        return write.op("Reshape", value, write.op("Concat", leading, sizes, axis=0))

    def _attend(
        self, node: Node, caches: tuple[tuple[Node, Node], ...], lengths: list[Handle], leading: Handle
    ) -> None:
        """Replace one PagedAttention.

        Args:
            node: The operator.
            caches: Input and output of its keys, and of its values.
            lengths: Last position of each row, and total number of positions.
            leading: Batch size and number of new tokens.
        """
        rewriter, write = self._rewriter, self._rewriter.under(node.name)
        operands = [self._in_rows(write, node.input(port), leading) for port in _OPERANDS]
        kind, (*_, heads, head_dim) = node.source(_CACHES[0]).element_type, node.source(_CACHES[0]).shape or ()
        pasts = [
            rewriter.input(read.name, kind, [BATCH_NAME, heads, "past_sequence_length", head_dim]) for read, _ in caches
        ]
        sources = [*operands, *pasts, *lengths, *(node.input(port) for port in _ANGLES)]
        sources += [None] * (_SINK_OF_GROUPS - len(sources)) + [node.input(_SINK)]
        sources += [None] * (NORM_WEIGHTS[0] - len(sources)) + [node.input(port) for port in PAGED_NORM_WEIGHTS]
        while sources[-1] is None:
            sources.pop()
        attributes = {name: value for name, value in node.attributes.items() if name in _COMMON}
        result, *presents = write.outputs(
            "GroupQueryAttention", *sources, count=3, label="attention", domain="com.microsoft", **attributes
        )
        rewriter.replace(node.outputs[0], write.op("Reshape", result, [-1, head_dim * node.attributes["num_heads"]]))
        for (_, written), present in zip(caches, presents, strict=True):
            rewriter.output(written.name, present, kind, [BATCH_NAME, heads, "total_sequence_length", head_dim])


def _result(graph: Graph, value: Value) -> Node:
    return next(use.node for use in graph.uses(value) if use.node.op == "Result")
