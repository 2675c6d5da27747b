"""The pass `quantize-caches`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.analysis.caches.quantized import round_cache, top_of
from graphpass.dialects.onnx.model import OnnxModel
from graphpass.dialects.onnx.rounded_caches import Scales, round_caches
from graphpass.engine.passes import Done, Pass
from graphpass.errors import ReadError, UnsupportedError, UsageError
from graphpass.ir.cache import Cache
from graphpass.ir.graph import Graph, Node
from graphpass.ir.operators import SHAPE_READERS, quantized_bits
from graphpass.ir.values import fixed_size, is_value_preserving
from graphpass.storage.documents import regular
from graphpass.verify.cache_samples import (
    CacheSample,
    loss_in_words,
    opened_on_ids,
    replayed,
    sample_caches,
    usual_prompts,
)
from graphpass.verify.prompts import Vocabulary

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from graphpass.runtime.sessions.session import DecodeSession

_BITS = {"8": 8, "4": 4}

_GROUPED = "GroupQueryAttention"

_CURE = "run fuse-group-query-attention before quantize-caches, or omit the pass"

_HINT = "write token ids, separated by spaces or commas, one prompt per line"


@dataclass(frozen=True)
class QuantizeCaches(Pass[OnnxModel]):
    """Quantize caches of GroupQueryAttention to 8 or 4 bits.

    The operator quantizes new keys and values before attention reads them, and stores integers: at 8192 positions a
    step reads 1/4 (8 bits) or 1/8 (4 bits) of the bytes. Prompts take longer, see the table in
    ``docs/onnxruntime.md``.

    Each channel of each head has a scale, computed from sampled keys and values: the pass runs the model on prompts and
    greedy steps. It then runs the quantized model on the same tokens, and reports the largest difference of logits.

    - With 8 bits, the scale covers 1.5 times the largest sampled magnitude of a channel.
    - With 4 bits, the scale has the smallest mean square error on the samples.
    - Two channels of keys that a rotary embedding rotates share a magnitude, the length of the pair, which does not
      depend on the position.

    Caches are unchanged, with a note, if operators other than attention read the past, or if the past stores only a
    window. Recurrent states and windows of convolutions are unchanged.

    Options:
        bits: Bits of an element; with 4, a byte stores two elements.
        tokens: File with prompts, token ids separated by spaces or commas, one prompt per line. By default three
            prompts of 5, 11 and 96 arbitrary ids. Prompts typical of the model's use result in better scales.

    Shapes:
        past and present ``[batch, kv_heads, sequence, head_dim]``, in 4 bits ``head_dim / 2``; scales ``[1, kv_heads,
        1, head_dim]``

    Before:
        GroupQueryAttention(query, key, value, past key (f32), past value (f32), ..)
    After:
        GroupQueryAttention(query, key, value, past key (i8), past value (i8), .., key scale, value scale)

    Raises:
        ReadError: GP111, the file of tokens cannot be read.
        UnsupportedError: GP389, no cache can be quantized; GP320 to GP325, no session can run the model.
        UsageError: GP250, the file of tokens has no prompts, or ids outside of the model's vocabulary.
    """

    name = "quantize-caches"
    dialect = "onnx"

    bits: Literal["8", "4"] = "8"
    tokens: str | None = None

    def run(self, model: OnnxModel) -> Done:
        bits = _BITS[self.bits]
        prompts = _prompts_in(Path(self.tokens)) if self.tokens is not None else None
        kept, left = _sorted(model)
        done = [node.name for node in model.graph.of_op(_GROUPED) if quantized_bits(node) == bits]
        if not kept and not done:
            reasons = "; ".join(left) or "the model has no attention"
            raise UnsupportedError("GP389", f"no cache can be quantized to {bits} bits: {reasons}", _CURE)
        notes = [f"caches of {name_and_reason}" for name_and_reason in left]
        if not kept:
            return Done(notes=tuple(notes))
        session = opened_on_ids(model)
        sample = sample_caches(session, _checked(session, prompts))
        del session
        scales = {pair.node.name: pair.scales(model.graph, sample, bits) for pair in kept}
        round_caches(model, scales, bits)
        after = replayed(opened_on_ids(model), sample)
        notes = [loss_in_words(sample, after, bits), *(pair.in_words(scales[pair.node.name]) for pair in kept), *notes]
        return Done({"caches quantized": 2 * len(kept), "attention left": len(left)}, tuple(notes))


@dataclass(frozen=True, slots=True)
class _Kept:
    """Attention with caches that can be quantized."""

    node: Node
    key: Cache
    value: Cache

    def scales(self, graph: Graph, sample: CacheSample, bits: int) -> Scales:
        pairs = _rotated_pairs(graph, self.node)
        contents = sample.contents[self.key.name], sample.contents[self.value.name]
        keys, values = (
            cache_scale_of(content, bits, paired) for content, paired in zip(contents, (pairs, None), strict=True)
        )
        return keys[None], values[None]

    def in_words(self, scales: Scales) -> str:
        named = zip(("keys", "values"), scales, strict=True)
        ranges = (f"{name} {scale.min():.3g} to {scale.max():.3g}" for name, scale in named)
        return f"layer {self.key.layer}: scales of {', of '.join(ranges)}"


def _sorted(model: OnnxModel) -> tuple[list[_Kept], list[str]]:
    """Return attention with caches that can be quantized, and reasons for other attention."""
    inventory = analyze_caches(model)
    nodes = {node.name: node for node in model.graph.of_op(_GROUPED)}
    kept, left = [], []
    for block in inventory.attention:
        caches = [cache for cache in inventory.of_kind("kv") if cache.name in {block.key, block.value}]
        node = nodes.get(block.node)
        if node is not None and quantized_bits(node) is not None:
            continue
        if node is None:
            reason = f"it is {block.form}, and only GroupQueryAttention stores integers"
        elif len(caches) != 2:
            reason = "it does not read a key cache and a value cache"
        elif block.window_in == "state":
            reason = "its past stores only a window"
        else:
            use = next((other_use for cache in caches if (other_use := _other_use(model.graph, node, cache))), None)
            if use is None:
                by_role = {cache.role: cache for cache in caches}
                kept.append(_Kept(node, by_role["key"], by_role["value"]))
                continue
            reason = use
        left.append(f"{block.node} stay unchanged: {reason}")
    return kept, left


def _other_use(graph: Graph, node: Node, cache: Cache) -> str | None:
    """Return the obstacle if ``node`` is not the only reader of ``cache``."""
    past, result = graph.reads[cache.read].outputs[0], graph.writes[str(cache.write)]
    # Some exporters write a Convert of presents to their own type.
    present = graph.look_through(result.source(), is_value_preserving)
    if past not in node.inputs or present not in node.outputs:
        return f"it does not read and write {cache.name} directly"
    others: list[Node] = []
    pending = [past, present]
    while pending:
        users = [use.node for use in graph.uses(pending.pop()) if use.node.index not in {node.index, result.index}]
        pending += [user.outputs[0] for user in users if is_value_preserving(user)]
        others += [user for user in users if user.op not in SHAPE_READERS and not is_value_preserving(user)]
    return f"{others[0].called} reads {cache.name} as well" if others else None


def _checked(session: DecodeSession, prompts: list[tuple[int, ...]] | None) -> list[tuple[int, ...]]:
    """Return ``prompts`` with checked ids; without prompts, those of verification."""
    if prompts is None:
        return usual_prompts(session)
    vocabulary = Vocabulary.of(session)
    return [vocabulary.check(prompt) for prompt in prompts]


def _prompts_in(file: Path) -> list[tuple[int, ...]]:
    try:
        lines = regular(file).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text in UTF-8"
        raise ReadError("GP111", f"cannot read the prompts {file}: {reason}", _HINT) from error
    try:
        prompts = [tuple(int(word) for word in line.replace(",", " ").split()) for line in lines if line.strip()]
    except ValueError as error:
        raise UsageError("GP250", f"expected token ids in {file}: {error}", _HINT) from error
    if not prompts:
        raise UsageError("GP250", f"{file} has no prompts", _HINT)
    return prompts


#: Largest value of 8 bits, relative to the largest sampled magnitude. Measured with scales of 18 decoders from 160
#: tokens each, on 64 other tokens: the error of a cache is up to 4 % with 1 (values are clipped), 1.5 % with 1.25, and
#: 1.1 % with 1.5.
_ROOM = 1.5

#: Candidates for the largest value of 4 bits, relative to the largest sampled magnitude.
_CUTS = tuple(cut / 20 for cut in range(6, 22))

#: Least magnitude of a channel, relative to the largest of its cache: channels may be zero only in the samples.
_LEAST = 1 / 128


@dataclass(frozen=True, slots=True)
class Pairs:
    """Pairs of channels of a head that a rotary embedding rotates.

    Attributes:
        count: Number of pairs.
        interleaved: Whether a pair is adjacent channels; otherwise it has one channel of each half.
    """

    count: int
    interleaved: bool

    def largest(self, content: NDArray[numpy.float32]) -> NDArray[numpy.float32]:
        """Return the largest magnitude at any position of each element of ``content [.., head_dim]``."""
        first = numpy.arange(self.count) * (2 if self.interleaved else 1)
        second = first + (1 if self.interleaved else self.count)
        magnitudes: NDArray[numpy.float32] = numpy.abs(content)
        magnitudes[..., first] = magnitudes[..., second] = numpy.hypot(content[..., first], content[..., second])
        return magnitudes


def _rotated_pairs(graph: Graph, node: Node) -> Pairs | None:
    """Return the pairs that GroupQueryAttention ``node``, or a RotaryEmbedding before its keys, rotates."""
    table, attributes = node.input(7), node.attributes
    if table is None:
        key = node.input(1)
        maker = graph.producer(key) if key is not None else None
        if maker is None or maker.op != "RotaryEmbedding":
            return None
        table, attributes = maker.input(2), maker.attributes
    count = fixed_size(table, -1)
    is_interleaved = bool(attributes.get("rotary_interleaved", attributes.get("interleaved", 0)))
    return Pairs(count, is_interleaved) if count is not None else None


def cache_scale_of(content: NDArray[numpy.float32], bits: int, pairs: Pairs | None) -> NDArray[numpy.float32]:
    """Return a scale for each channel, f32 ``[heads, 1, head_dim]``.

    Args:
        content: Keys or values, ``[heads, positions, head_dim]``.
        bits: 8 or 4.
        pairs: Pairs of channels that a rotary embedding rotates, which share a magnitude.
    """
    wide = content.astype(numpy.float32)
    largest = (numpy.abs(wide) if pairs is None else pairs.largest(wide)).max(axis=1, keepdims=True)
    largest = numpy.maximum(largest, largest.max() * _LEAST or 1.0)
    top = numpy.float32(top_of(bits))
    if bits == 8:
        return numpy.asarray(largest * _ROOM / top, numpy.float32)
    scales = [largest * cut / top for cut in _CUTS]
    errors = [numpy.square(round_cache(wide, scale, bits) - wide).mean(axis=1, keepdims=True) for scale in scales]
    best = numpy.argmin(errors, axis=0)
    return numpy.asarray(numpy.choose(best, scales), numpy.float32)
