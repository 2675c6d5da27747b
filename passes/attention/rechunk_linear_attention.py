"""The pass `rechunk-linear-attention`."""

from __future__ import annotations

from dataclasses import dataclass

from graphpass.analysis.equations.linear_attention import find_chunked_attention
from graphpass.analysis.equations.linear_equation import LinearAttention
from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.engine.passes import Done, Pass
from graphpass.ir.miss import Miss
from graphpass.ir.writer import Handle, Writer
from graphpass.passes.attention.linear_operands import LinearOperands, rewrite_layers

#: Tokens of a chunk, at which token-by-token products cost as much as state-by-token products.
_CHUNK = 64

#: Logarithm whose exponential is 0, in f16 as well.
_NEVER = -1e4

#: Axis of tokens in ``[batch, heads * chunks, tokens, ..]``, and of chunks in ``[batch, heads, chunks, ..]``. Tensors
#: have at most four axes: OpenVINO's GPU plugin (2026.4.1) multiplies MatMul results of five axes by wrong elements.
_INNER = 2


@dataclass(frozen=True)
class RechunkLinearAttention(Pass[OpenVINOModel]):
    """Rewrite linear attention over one chunk of tokens for any number of chunks.

    PyTorch computes Mamba-2 by matrix products over chunks of tokens. An export contains the number of chunks of its
    example input: one. With more tokens the runtime fails or computes incorrectly, and each step is padded to a whole
    chunk.

    OpenVINO does not fuse a Loop of this rule. The pass writes matrix products over all chunks, of ``min(64, length)``
    tokens each, and one product that carries states from chunk to chunk. With two layers of 24 heads, states of 256 x
    64 and chunks of 256 tokens, a step takes 7 ms instead of 90, a prompt of 250 tokens 54 ms instead of 127 (CPU
    plugin 2026.4.1, 2 cores).

    Chunks are found as in `fuse-linear-attention`, by sampled results. The pass supports one decay per head, or none,
    and no delta rule; other chunks are unchanged.

    Source: "Transformers are SSMs", section 6, https://arxiv.org/abs/2405.21060.

    Shapes:
        query and key ``[batch, tokens, heads * key_dim]``, value ``[batch, tokens, heads * value_dim]``, decay
        ``[batch, tokens, heads]``, state ``[batch, heads, key_dim, value_dim]``

    Before:
        Pad to one chunk -> Exp(CumSum(log of decay)), MatMul .. -> output, present
    After:
        Pad to chunks -> (query @ key * Exp(decay between tokens)) @ value + query * Exp(decay) @ state before the chunk
    """

    name = "rechunk-linear-attention"
    dialect = "openvino"

    def run(self, model: OpenVINOModel) -> Done:
        chunks = {
            name: recurrence
            for name, recurrence in model.analysis(find_chunked_attention).items()
            if isinstance(recurrence, Miss) or recurrence.chunk is not None
        }
        count, notes = rewrite_layers(model, chunks, _write, _why_not)
        return Done({"layers rechunked": count} if count else {}, notes)


def _why_not(recurrence: LinearAttention) -> str | None:
    if recurrence.corrects:
        return f"its rule is {recurrence.rule}, which makes tokens of a chunk depend on one another"
    if recurrence.groups > 1:
        return f"{recurrence.groups} query heads read each state"
    if recurrence.decay is not None and recurrence.decay.width > 1:
        return "rows of a state decay differently"
    return None


def _write(operands: LinearOperands) -> None:
    recurrence, write = operands.recurrence, operands.write
    heads, key_dim, value_dim = recurrence.heads, recurrence.key_dim, recurrence.value_dim
    key = operands.key()
    chunks = _Chunks(write, key, heads)
    query = chunks.split(operands.query(), key_dim)
    if recurrence.scale != 1.0:
        query = write.op("Multiply", query, write.number(recurrence.scale, "f32"))
    decay = recurrence.decay
    log = operands.constant([0.0], key) if decay is None else operands.log_decay(decay, key)
    layer = _Layer(write, chunks.split(log, None), (heads, key_dim, value_dim))
    output, present = layer.write(
        query, chunks.split(key, key_dim), chunks.split(operands.value(), value_dim), operands.past()
    )
    rows = write.op("Transpose", chunks.joined(output, value_dim), order=[0, 2, 1, 3])
    operands.replace(write.op("Reshape", rows, [0, 0, heads * value_dim]), present)


class _Chunks:
    """Reshapes tensors of all tokens to chunks, ``[batch, heads * chunks, tokens, elements]``."""

    def __init__(self, write: Writer, tensor: Handle, heads: int) -> None:
        """Compute the sizes of chunks and padding from ``tensor``, ``[batch, tokens, ..]``."""
        self._write, self._heads = write, heads
        self._length = write.size(tensor, 1, label="length")
        self._size = write.op("Minimum", self._length, [_CHUNK], label="chunk")
        last = write.op("Subtract", write.op("Add", self._length, self._size), [1])
        whole = write.op("Multiply", write.op("Divide", last, self._size, label="chunks"), self._size)
        self._added = write.op("Subtract", whole, self._length, label="added")

    def split(self, tensor: Handle, width: int | None) -> Handle:
        """Return chunks of ``[batch, tokens, heads * width]``, or ``[batch, tokens, heads]`` without ``width``."""
        write, elements = self._write, [] if width is None else [width]
        split = write.op("Reshape", tensor, [0, 0, self._heads, *elements])
        lined = write.op("Transpose", split, order=[0, 2, 1, *([3] if elements else [])])
        rank = 3 + len(elements)
        ends = write.op("Concat", [0, 0], self._added, [0] * (rank - 3), axis=0)
        padded = write.op("Pad", lined, [0] * rank, ends, write.number(0.0, "f32"), label="padded")
        return write.op("Reshape", padded, write.op("Concat", [0, -1], self._size, elements, axis=0))

    def joined(self, tensor: Handle, width: int) -> Handle:
        """Return chunks joined to ``[batch, heads, tokens, width]``, without padding."""
        whole = self._write.op("Reshape", tensor, [0, self._heads, -1, width])
        return self._write.slice(whole, 0, self._length, axis=2, label="tokens")


class _Layer:
    """Products over the chunks of one layer.

    The decay between two tokens is summed separately for each pair: differences of running sums lose precision, all of
    it in f16.
    """

    def __init__(self, write: Writer, log: Handle, sizes: tuple[int, int, int]) -> None:
        """Sum up decays.

        Args:
            write: Writer of the layer.
            log: Logarithms of decays, ``[batch, heads * chunks, tokens]``.
            sizes: Number of heads, sizes of keys and values.
        """
        self._write, (self._heads, self._key_dim, self._value_dim) = write, sizes
        self._log = log
        self._whole = write.op("ReduceSum", log, axes=[_INNER], keep=True, label="of_chunk")

    def write(self, query: Handle, key: Handle, value: Handle, past: Handle) -> tuple[Handle, Handle]:
        """Return the results in chunks, and the last state."""
        write = self._write
        until = write.op("CumSum", self._log, axis=_INNER, label="until_token")
        rest = write.op("CumSum", self._log, axis=_INNER, exclusive=True, reverse=True, label="after_token")
        kept = write.op("Multiply", key, self._exponential(rest))
        new = write.op("MatMul", kept, value, transpose_a=True, label="of_chunks")
        before = self._states_before(new, past)
        scores = write.op("MatMul", query, key, transpose_b=True, label="scores")
        scores = write.op("Multiply", scores, self._between(self._log, is_strict=False))
        decayed = write.op("Multiply", query, self._exponential(until))
        result = write.op("Add", write.op("MatMul", scores, value), write.op("MatMul", decayed, before), label="result")
        after = write.op("Add", write.op("Multiply", before, self._exponential(self._whole)), new)
        last = write.slice(self._lined(after), -1, None, axis=_INNER, label="last")
        return result, write.op("Reshape", last, [0, 0, self._key_dim, self._value_dim], label="present")

    def _lined(self, states: Handle) -> Handle:
        """Return states of chunks as rows, ``[batch, heads, chunks, key_dim * value_dim]``."""
        return self._write.op("Reshape", states, [0, self._heads, -1, self._key_dim * self._value_dim])

    def _states_before(self, new: Handle, past: Handle) -> Handle:
        """Return the state before each chunk: the decayed past and additions of earlier chunks."""
        write = self._write
        of_chunks = write.op("Reshape", self._whole, [0, self._heads, -1])
        added = write.op("MatMul", self._between(of_chunks, is_strict=True), self._lined(new), label="carried")
        first = write.op("Reshape", past, [0, 0, 1, self._key_dim * self._value_dim])
        decay = self._exponential(write.op("CumSum", of_chunks, axis=_INNER, exclusive=True))
        states = write.op("Add", added, write.op("Multiply", first, decay), label="states")
        return write.op("Reshape", states, [0, -1, self._key_dim, self._value_dim])

    def _between(self, log: Handle, *, is_strict: bool) -> Handle:
        """Return the decay from each column to each row, 0 if the row is earlier.

        Args:
            log: Logarithms of decays, along the last axis.
            is_strict: Whether the diagonal is 0, and the row's own decay is excluded.
        """
        write = self._write
        count = write.op("Squeeze", write.size(log, _INNER), axes=[0])
        indices = write.op("Range", 0, count, 1)
        rows, columns = (write.op("Unsqueeze", indices, axes=[end]) for end in (1, 0))
        is_after = write.op("Less", columns, rows)
        repeated = write.op("Unsqueeze", log, axes=[_INNER + 1])
        counted = write.op("Select", is_after, repeated, write.number(0.0, "f32"))
        total = write.op("CumSum", counted, axis=_INNER, exclusive=is_strict)
        is_later = is_after if is_strict else write.op("LessEqual", columns, rows)
        return write.op("Exp", write.op("Select", is_later, total, write.number(_NEVER, "f32")), label="between")

    def _exponential(self, log: Handle) -> Handle:
        return self._write.op("Exp", self._write.op("Unsqueeze", log, axes=[_INNER + 1]))
