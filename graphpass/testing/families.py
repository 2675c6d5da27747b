"""Tiny decoders of known families, in the text form."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

_POSITIONS = 256
_LOWEST = -3.4028235e38


@dataclass(frozen=True, slots=True)
class Family:
    """Structure of the decoders of a family.

    Attributes:
        norm: RMS norm or layer norm.
        positions: Rotary embedding, learned position embedding, or ALiBi.
        rotated: Share of the channels of a head that the rotary embedding rotates.
        heads: Number of query heads.
        kv_heads: Number of key and value heads.
        head_dim: Size of a head, in elements.
        vocabulary: Number of token ids.
        activation: Activation of the feed-forward block.
        gated: Whether the feed-forward block multiplies an activated projection with a second one.
        merged: Whether one product computes query, key and value, and one computes gate and up projection.
        biased: Whether projections have a bias.
        qk_norm: Whether queries and keys are normalized.
        parallel: Whether attention and feed-forward block of a layer read the same input.
        post_norm: Whether the outputs of attention and feed-forward block are normalized, too.
        window: Number of latest positions that a query attends to; 0 for all.
        every_window: Whether the window applies to all layers; otherwise to every other layer.
        cap: Soft cap of the attention scores; 0 for none.
        sinks: Whether the softmax has a learned sink for each head.
        experts: Number of experts, two of which process each token; 0 for a dense feed-forward block.
        convolution: Whether every other layer has a gated short convolution in place of attention.

    Examples:
        >>> from graphpass.testing import Family, tiny_model
        >>> model = tiny_model(Family(heads=2, kv_heads=1), layers=1)
        >>> model.graph.reads["past.0.key"].outputs[0].shape[1]
        1
    """

    norm: Literal["rms", "layer"] = "rms"
    positions: Literal["rotary", "learned", "alibi"] = "rotary"
    rotated: float = 1.0
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 8
    vocabulary: int = 64
    activation: Literal["silu", "gelu", "tanh"] = "silu"
    gated: bool = True
    merged: bool = False
    biased: bool = False
    qk_norm: bool = False
    parallel: bool = False
    post_norm: bool = False
    window: int = 0
    every_window: bool = False
    cap: float = 0.0
    sinks: bool = False
    experts: int = 0
    convolution: bool = False

    @property
    def hidden(self) -> int:
        """Return the size of a hidden state, in elements."""
        return self.heads * self.head_dim

    @property
    def inner(self) -> int:
        """Return the size of the feed-forward block's intermediate state, in elements."""
        return self.hidden * 3 // 2


#: Known families, by name.
FAMILIES = {
    "bloom": Family("layer", "alibi", kv_heads=4, activation="tanh", gated=False, merged=True, biased=True),
    "gemma2": Family(activation="tanh", post_norm=True, window=6, cap=50.0),
    "gpt2": Family("layer", "learned", kv_heads=4, activation="tanh", gated=False, merged=True, biased=True),
    "gpt_neox": Family("layer", rotated=0.5, kv_heads=4, activation="gelu", gated=False, biased=True, parallel=True),
    "gpt_oss": Family(biased=True, window=6, sinks=True),
    "lfm2": Family(qk_norm=True, convolution=True),
    "llama": Family(),
    "mistral": Family(window=6, every_window=True),
    "mixtral": Family(experts=4),
    "phi3": Family(kv_heads=4, merged=True),
    "qwen2": Family(biased=True),
    "qwen3": Family(qk_norm=True),
}


def text_of_family(family: Family, layers: int = 2) -> str:
    """Return the text form of a stateless decoder.

    Args:
        family: Structure of the decoder.
        layers: Number of layers.

    Returns:
        The text form, which `graphpass.testing.parse_model` reads.
    """
    return "\n".join(_Decoder(family, layers).statements())


class _Decoder:
    def __init__(self, family: Family, layers: int) -> None:
        self._family, self._layers = family, layers
        self._heads, self._head_dim, self._hidden = family.heads, family.head_dim, family.hidden
        self._lines: list[str] = []

    def statements(self) -> Iterator[str]:
        for name in ("input_ids", "attention_mask", "position_ids"):
            if name != "position_ids" or self._family.positions != "alibi":
                length = "total" if name == "attention_mask" else "length"
                yield f"%{name} = Parameter : i64[batch, {length}]"
        kept = [state for layer in range(self._layers) for state in self._states(layer)]
        for state, shape in kept:
            yield f"%past.{state} = Parameter : f32[{shape.format('past')}]"
        self._write()
        yield from self._lines
        for state, _ in kept:
            yield f"Result(%present.{state}) {{name=present.{state}}}"

    def _states(self, layer: int) -> list[tuple[str, str]]:
        if self._is_convolution(layer):
            return [(f"{layer}.conv", f"batch, {self._hidden}, 2")]
        shape = f"batch, {self._family.kv_heads}, {{}}, {self._head_dim}"
        return [(f"{layer}.{role}", shape) for role in ("key", "value")]

    def _is_convolution(self, layer: int) -> bool:
        return self._family.convolution and layer % 2 == 0

    def _add(self, name: str, kind: str, *operands: Any, type_: str = "", **stated: Any) -> str:
        attributes = ", ".join(f"{key}={value}" for key, value in stated.items())
        called = f"({', '.join(map(str, operands))})" if operands else ""
        words = [f"%{name} = {kind}{called}", f"{{{attributes}}}" if stated else "", f": {type_}" if type_ else ""]
        self._lines.append(" ".join(word for word in words if word))
        return f"%{name}"

    def _weight(self, name: str, *shape: int) -> str:
        return self._add(name, "Constant", type_=f"f32{list(shape)}")

    def _product(self, name: str, x: str, columns: int, rows: int = 0, biased: bool | None = None) -> str:
        product = self._add(name, "MatMul", x, self._weight(f"{name}.weight", rows or self._hidden, columns))
        if not (self._family.biased if biased is None else biased):
            return product
        return self._add(f"{name}.biased", "Add", product, self._weight(f"{name}.bias", columns))

    def _write(self) -> None:
        embedded = self._add(
            "embed", "Gather", self._weight("embed.weight", self._family.vocabulary, self._hidden), "%input_ids", axis=0
        )
        if self._family.positions == "learned":
            table = self._weight("positions.weight", _POSITIONS, self._hidden)
            placed = self._add("positions", "Gather", table, "%position_ids", axis=0)
            embedded = self._add("embed.placed", "Add", embedded, placed)
        self._angles()
        self._ranges()
        x = embedded
        for layer in range(self._layers):
            x = self._layer(f"L{layer}", layer, x)
        logits = self._product("lm_head", self._normed("norm", x), self._family.vocabulary, biased=False)
        self._lines.append(f"Result({logits}) {{name=logits}}")

    def _angles(self) -> None:
        if self._family.positions != "rotary":
            return
        width = int(self._head_dim * self._family.rotated)
        frequencies = [10000.0 ** -(2 * channel / width) for channel in range(width // 2)] * 2
        wide = self._add("positions.wide", "Unsqueeze", "%position_ids", axes=[1, 3])
        angles = self._add("angles", "Multiply", self._add("positions", "Convert", wide, to="f32"), frequencies)
        self._add("cos", "Cos", angles)
        self._add("sin", "Sin", angles)

    def _ranges(self) -> None:
        """Write the positions of queries and keys, the masks, and ALiBi's bias."""
        layer, role = (1, "key") if self._family.convolution else (0, "key")
        past = self._add("past.size", "Gather", self._add("past.shape", "ShapeOf", f"%past.{layer}.{role}"), 2, axis=0)
        new = self._add("new.size", "Gather", self._add("ids.shape", "ShapeOf", "%input_ids"), 1, axis=0)
        end = self._add("total.size", "Add", past, new)
        queries = self._add("queries", "Unsqueeze", self._add("queries.range", "Range", past, end, 1), axes=[0, 1, 3])
        keys = self._add("keys", "Unsqueeze", self._add("keys.range", "Range", 0, end, 1), axes=[0, 1, 2])
        visible = self._add("mask", "Convert", "%attention_mask", to="boolean")
        visible = self._add("mask.wide", "Unsqueeze", visible, axes=[1, 2])
        causal = self._add("causal", "LogicalAnd", self._add("before", "LessOrEqual", keys, queries), visible)
        self._add("full.mask", "Select", causal, 0.0, _LOWEST)
        if self._family.window:
            first = self._add("window.first", "Subtract", queries, self._family.window)
            near = self._add("window", "LogicalAnd", causal, self._add("near", "Greater", keys, first))
            self._add("window.mask", "Select", near, 0.0, _LOWEST)
        if self._family.positions == "alibi":
            away = self._add("away", "Convert", self._add("distance", "Subtract", keys, queries), to="f32")
            slopes = [[[2.0 ** -(2 * head + 2)]] for head in range(self._heads)]
            self._add("alibi", "Multiply", away, [slopes])

    def _layer(self, at: str, layer: int, x: str) -> str:
        family = self._family
        normed = self._normed(f"{at}.input_norm", x)
        mix = self._convolution if self._is_convolution(layer) else self._attention
        mixed = mix(at, layer, normed)
        if family.post_norm:
            mixed = self._normed(f"{at}.mixed_norm", mixed)
        if family.parallel:
            fed = self._feed_forward(f"{at}.mlp", self._normed(f"{at}.post_norm", x))
            return self._add(f"{at}.out", "Add", self._add(f"{at}.both", "Add", mixed, fed), x)
        x = self._add(f"{at}.mixed", "Add", x, mixed)
        fed = self._feed_forward(f"{at}.mlp", self._normed(f"{at}.post_norm", x))
        if family.post_norm:
            fed = self._normed(f"{at}.fed_norm", fed)
        return self._add(f"{at}.out", "Add", x, fed)

    def _normed(self, at: str, x: str, size: int = 0, axis: int = 2) -> str:
        if self._family.norm == "layer":
            mean = self._add(f"{at}.mean", "ReduceMean", x, axes=[axis], keep="true")
            x = self._add(f"{at}.centred", "Subtract", x, mean)
        square = self._add(f"{at}.square", "Power", x, 2.0)
        mean = self._add(f"{at}.variance", "ReduceMean", square, axes=[axis], keep="true")
        root = self._add(f"{at}.root", "Sqrt", self._add(f"{at}.safe", "Add", mean, 1e-6))
        scaled = self._add(f"{at}.scaled", "Divide", x, root)
        normed = self._add(at, "Multiply", scaled, self._weight(f"{at}.weight", size or self._hidden))
        if self._family.norm == "rms":
            return normed
        return self._add(f"{at}.biased", "Add", normed, self._weight(f"{at}.bias", size or self._hidden))

    def _split_heads(self, at: str, flat: str, heads: int) -> str:
        split = self._add(f"{at}.split", "Reshape", flat, [0, 0, heads, self._head_dim])
        return self._add(f"{at}.heads", "Transpose", split, order=[0, 2, 1, 3])

    def _projections(self, at: str, x: str) -> list[str]:
        sizes = [self._hidden, *[self._family.kv_heads * self._head_dim] * 2]
        if not self._family.merged:
            return [self._product(f"{at}.{name}", x, size) for name, size in zip("qkv", sizes, strict=True)]
        whole = self._product(f"{at}.qkv", x, sum(sizes))
        return self._split(at, whole, ["q", "k", "v"], sizes)

    def _split(self, at: str, whole: str, names: list[str], sizes: list[int]) -> list[str]:
        parts = [f"%{at}.{name}" for name in names]
        self._lines.append(f"{', '.join(parts)} = VariadicSplit({whole}, {sizes}) {{axis=2}}")
        return parts

    def _rotated(self, at: str, x: str) -> str:
        if self._family.positions != "rotary":
            return x
        width = int(self._head_dim * self._family.rotated)
        turned = x if width == self._head_dim else self._add(f"{at}.front", "Slice", x, [0], [width], axes=[3])
        first = self._add(f"{at}.first", "Slice", turned, [0], [width // 2], axes=[3])
        second = self._add(f"{at}.second", "Slice", turned, [width // 2], [width], axes=[3])
        swapped = self._add(f"{at}.swapped", "Concat", self._add(f"{at}.negated", "Negative", second), first, axis=3)
        parts = self._add(f"{at}.cos", "Multiply", turned, "%cos"), self._add(f"{at}.sin", "Multiply", swapped, "%sin")
        rotated = self._add(f"{at}.rotated", "Add", *parts)
        if width == self._head_dim:
            return rotated
        rest = self._add(f"{at}.rest", "Slice", x, [width], [self._head_dim], axes=[3])
        return self._add(f"{at}.whole", "Concat", rotated, rest, axis=3)

    def _attention(self, at: str, layer: int, x: str) -> str:
        family, kv_heads = self._family, self._family.kv_heads
        projected = zip("qkv", self._projections(at, x), (self._heads, kv_heads, kv_heads), strict=True)
        query, key, value = (self._split_heads(f"{at}.{name}", flat, heads) for name, flat, heads in projected)
        if family.qk_norm:
            query, key = (
                self._normed(f"{at}.{name}_norm", value, self._head_dim, 3)
                for name, value in (("q", query), ("k", key))
            )
        query, key = self._rotated(f"{at}.q", query), self._rotated(f"{at}.k", key)
        key, value = (
            self._repeated(f"{at}.{role}", self._add(f"present.{layer}.{role}", "Concat", past, new, axis=2))
            for role, past, new in (("key", f"%past.{layer}.key", key), ("value", f"%past.{layer}.value", value))
        )
        weights = self._weights(at, layer, query, key)
        mixed = self._add(f"{at}.attend", "MatMul", weights, value)
        joined = self._add(f"{at}.joined", "Transpose", mixed, order=[0, 2, 1, 3])
        return self._product(f"{at}.o", self._add(f"{at}.flat", "Reshape", joined, [0, 0, self._hidden]), self._hidden)

    def _repeated(self, at: str, x: str) -> str:
        """Repeat each head of keys or values for the query heads that read it.

        Returns:
            Name of the repeated heads.
        """
        kv_heads = self._family.kv_heads
        if kv_heads == self._heads:
            return x
        wide = self._add(f"{at}.wide", "Unsqueeze", x, axes=[2])
        shape = self._add(f"{at}.shape", "ShapeOf", x)
        batch, length = (
            self._add(f"{at}.{name}", "Gather", shape, [axis], axis=0) for name, axis in (("batch", 0), ("length", 2))
        )
        target = self._add(
            f"{at}.target", "Concat", batch, [kv_heads], [self._heads // kv_heads], length, [self._head_dim], axis=0
        )
        copies = self._add(f"{at}.copies", "Broadcast", wide, target)
        return self._add(
            f"{at}.repeated",
            "Reshape",
            copies,
            self._add(f"{at}.merged", "Concat", batch, [self._heads], length, [self._head_dim], axis=0),
        )

    def _weights(self, at: str, layer: int, query: str, key: str) -> str:
        family = self._family
        turned = self._add(f"{at}.turned", "Transpose", key, order=[0, 1, 3, 2])
        scores = self._add(
            f"{at}.scores", "Multiply", self._add(f"{at}.qk", "MatMul", query, turned), self._head_dim**-0.5
        )
        if family.cap:
            tanh = self._add(f"{at}.tanh", "Tanh", self._add(f"{at}.small", "Divide", scores, family.cap))
            scores = self._add(f"{at}.capped", "Multiply", tanh, family.cap)
        if family.positions == "alibi":
            scores = self._add(f"{at}.sloped", "Add", scores, "%alibi")
        is_near = family.window and (family.every_window or layer % 2 == 0)
        masked = self._add(f"{at}.masked", "Add", scores, "%window.mask" if is_near else "%full.mask")
        if not family.sinks:
            return self._add(f"{at}.softmax", "Softmax", masked, axis=3)
        shape = self._add(f"{at}.rows", "ShapeOf", query)
        rows = self._add(f"{at}.leading", "Slice", shape, [0], [3], axes=[0])
        target = self._add(f"{at}.sinks.shape", "Concat", rows, [1], axis=0)
        sinks = self._add(f"{at}.sinks.wide", "Broadcast", self._weight(f"{at}.sinks", 1, self._heads, 1, 1), target)
        softmax = self._add(
            f"{at}.softmax", "Softmax", self._add(f"{at}.sunk", "Concat", masked, sinks, axis=3), axis=3
        )
        return self._add(f"{at}.kept", "Slice", softmax, [0], [-1], axes=[3])

    def _convolution(self, at: str, layer: int, x: str) -> str:
        """Write a gated convolution over the last three tokens.

        Returns:
            Name of the output.
        """
        turned = self._add(
            f"{at}.columns", "Transpose", self._product(f"{at}.in", x, 3 * self._hidden), order=[0, 2, 1]
        )
        parts = [f"%{at}.{name}" for name in ("before", "after", "x")]
        self._lines.append(f"{', '.join(parts)} = VariadicSplit({turned}, {[self._hidden] * 3}) {{axis=1}}")
        gated = self._add(f"{at}.gated", "Multiply", parts[0], parts[2])
        window = self._add(f"{at}.window", "Concat", f"%past.{layer}.conv", gated, axis=2)
        self._add(f"present.{layer}.conv", "Slice", window, [-2], [2**31 - 1], axes=[2])
        kernel = self._weight(f"{at}.kernel", self._hidden, 1, 3)
        mixed = self._add(f"{at}.conv", "onnx.Conv", window, kernel, group=self._hidden)
        mixed = self._add(f"{at}.opened", "Multiply", parts[1], mixed)
        return self._product(f"{at}.o", self._add(f"{at}.rows", "Transpose", mixed, order=[0, 2, 1]), self._hidden)

    def _activated(self, at: str, x: str) -> str:
        if self._family.activation == "silu":
            return self._add(f"{at}.act", "Multiply", x, self._add(f"{at}.sigmoid", "Sigmoid", x))
        if self._family.activation == "gelu":
            error = self._add(f"{at}.erf", "Erf", self._add(f"{at}.root", "Divide", x, 2.0**0.5))
            half = self._add(f"{at}.half", "Multiply", x, self._add(f"{at}.one", "Add", error, 1.0))
            return self._add(f"{at}.act", "Multiply", half, 0.5)
        cube = self._add(f"{at}.small", "Multiply", self._add(f"{at}.cube", "Power", x, 3.0), 0.044715)
        inner = self._add(f"{at}.inner", "Multiply", self._add(f"{at}.sum", "Add", x, cube), 0.7978845608)
        gate = self._add(f"{at}.open", "Add", self._add(f"{at}.tanh", "Tanh", inner), 1.0)
        return self._add(f"{at}.act", "Multiply", self._add(f"{at}.half", "Multiply", x, 0.5), gate)

    def _feed_forward(self, at: str, x: str) -> str:
        if not self._family.experts:
            return self._expert(at, x)
        scores = self._add(f"{at}.scores", "Softmax", self._product(f"{at}.router", x, self._family.experts), axis=2)
        self._lines.append(f"%{at}.best, %{at}.ids = TopK({scores}, [2]) {{axis=2}}")
        total = self._add(f"{at}.total", "ReduceSum", f"%{at}.best", axes=[2], keep="true")
        shares = self._add(f"{at}.shares", "Divide", f"%{at}.best", total)
        state = ""
        for number in range(self._family.experts):
            own = f"{at}.expert{number}"
            hit = self._add(f"{own}.hit", "Convert", self._add(f"{own}.is", "Equal", f"%{at}.ids", number), to="f32")
            share = self._add(
                f"{own}.share", "ReduceSum", self._add(f"{own}.part", "Multiply", shares, hit), axes=[2], keep="true"
            )
            result = self._add(f"{own}.weighted", "Multiply", self._expert(own, x), share)
            state = self._add(f"{own}.sum", "Add", state, result) if state else result
        return state

    def _expert(self, at: str, x: str) -> str:
        if not self._family.gated:
            up = self._product(f"{at}.up", x, self._family.inner)
            return self._product(f"{at}.down", self._activated(at, up), self._hidden, self._family.inner)
        if self._family.merged:
            gate, up = self._split(
                at, self._product(f"{at}.gate_up", x, 2 * self._family.inner), ["gate", "up"], [self._family.inner] * 2
            )
        else:
            gate, up = (
                self._product(f"{at}.gate", x, self._family.inner),
                self._product(f"{at}.up", x, self._family.inner),
            )
        product = self._add(f"{at}.product", "Multiply", self._activated(at, gate), up)
        return self._product(f"{at}.down", product, self._hidden, self._family.inner)
