"""Caches of a model as plain data: the inventory."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from graphpass.ir.element_types import element_bytes
from graphpass.ir.types import Dimension

CacheKind = Literal["kv", "linear", "cross", "other", "unknown"]
CacheRole = Literal[
    "key",
    "value",
    "indexer_key",
    "conv",
    "recurrent",
    "cross_key",
    "cross_value",
    "encoder_hidden",
    "adapter",
    "counter",
    "unknown",
]
ModelKind = Literal["none", "kv", "linear", "hybrid"]

#: Part of a mask that hides or weighs positions; see `AttentionBlock`.
MaskPart = Literal["causal", "input", "lengths", "alibi", "bias"]

#: The note on a model whose caches are cut in the form that one version of one plugin takes; see `insert-reorder`.
TRIM_NOTE = "trim"


@dataclass(frozen=True, slots=True)
class Axes:
    """Indices of the logical axes of a cache; ``None`` for an axis that it lacks.

    Examples:
        >>> from graphpass import Axes
        >>> Axes(batch=0, heads=1, sequence=2, head_dim=3).sequence
        2
    """

    batch: int | None = None
    heads: int | None = None
    sequence: int | None = None
    head_dim: int | None = None


#: The layout of keys and values that attention reads, and that most runtimes require: batch, heads, sequence, head_dim.
BHSD = Axes(0, 1, 2, 3)


@dataclass(frozen=True, slots=True)
class Cache:
    """One tensor carried from one step to the next.

    Attributes:
        name: Variable id of a stateful cache, name of the past input of a stateless one.
        kind: ``kv`` grows along the sequence axis, ``linear`` is replaced each step, ``cross`` is only read; ``other``
            is known to be no cache of a decoder, ``unknown`` has no conclusive evidence.
        role: Its use in the model; an ``indexer_key`` scores positions for a TopK that selects those that attention
            reads; an ``other`` is adapter weights (``adapter``), a number that counts (``counter``),
            or the state of an ordinary LSTM, GRU or RNN (``recurrent``).
        layer: Position of its layer among the layers that hold caches, from 0; ``None`` if it is not known.
        axes: Places of the logical axes.
        shape: The declared shape, symbols and unknown dimensions as in the model.
        element_type: OpenVINO's short name.
        read: Name of the past input, or of the ReadValue.
        write: Name of the present output, or of the Assign; ``None`` for a cache that is only read.
        evidence: Reasons for kind and role, one fact a line.
        bits: Bits of a number that times a scale is the value; ``None`` if elements are the values. Two of 4 bits are
            one element.

    Examples:
        >>> import graphpass
        >>> cache = graphpass.analyze_caches(graphpass.load("build/fixtures/llama/onnx")).caches[0]
        >>> cache.name, cache.role, cache.element_type, cache.shape
        ('past_key_values.0.key', 'key', 'f32', ('batch_size', 2, 'past_sequence_length', 16))
    """

    name: str
    kind: CacheKind
    role: CacheRole
    layer: int | None
    axes: Axes
    shape: tuple[Dimension, ...] | None
    element_type: str
    read: str
    write: str | None
    evidence: tuple[str, ...] = ()
    bits: int | None = None

    @property
    def precision(self) -> str:
        """Return the type in which a value is stored; several values may share an element."""
        return self.element_type if self.bits is None else f"i{self.bits}"

    @property
    def value_shape(self) -> tuple[Dimension, ...] | None:
        """Return the shape, counted in values."""
        if self.shape is None or self.bits is None:
            return self.shape
        shared = int(element_bytes(self.element_type) * 8) // self.bits
        return tuple(
            size * shared if axis == self.axes.head_dim and isinstance(size, int) else size
            for axis, size in enumerate(self.shape)
        )

    def size(self, axis: int | None) -> int | None:
        """Return the size of an axis; ``None`` if it is not fixed."""
        size = self.shape[axis] if self.shape is not None and axis is not None else None
        return size if isinstance(size, int) else None

    @property
    def capacity(self) -> int | None:
        """Return the number of positions that fit; ``None`` if that is not fixed."""
        return self.size(self.axes.sequence)

    @property
    def index(self) -> int | None:
        """Last number in its name; some exporters count layers, some caches of one kind."""
        numbers = re.findall(r"\d+", self.name)
        return int(numbers[-1]) if numbers else None

    @property
    def filled_by(self) -> str:
        """Return the name of the output of another model that computes it.

        Exporters write ``present`` for ``past_key_values``, onnxruntime-genai's builder for ``past``.
        """
        return re.sub("past(_key_values)?", "present", self.read, count=1)

    @property
    def bytes_per_token(self) -> int | None:
        """Return the bytes of one position; ``None`` without growth or known sizes."""
        return self._bytes() if self.axes.sequence is not None else None

    @property
    def fixed_bytes(self) -> int | None:
        """Bytes of one batch entry at any length; ``None`` for a cache that grows."""
        return self._bytes() if self.axes.sequence is None else None

    def _bytes(self) -> int | None:
        total = element_bytes(self.element_type)
        for axis, dimension in enumerate(self.shape or (None,)):
            if axis not in {self.axes.batch, self.axes.sequence}:
                total *= dimension if isinstance(dimension, int) else 0
        return int(total) or None


@dataclass(frozen=True, slots=True)
class AttentionBlock:
    """One computation of attention.

    Attributes:
        node: Name of its node: the fused operator, or the Softmax.
        form: ``"decomposed"``, or the operator's type (``"ScaledDotProductAttention"``, ``"GroupQueryAttention"``).
        key: Name of the cache that it reads keys from; ``None`` if it reads none.
        value: Name of the cache that it reads values from; the same if one cache holds both.
        fusable: Whether `fuse-attention` can express it; true of an operator that is fused already.
        reason: Reason if it is not fusable.
        layer: Layer of the caches that it reads; ``None`` if it reads none, or their layer is not known.
        heads: Number of query heads; ``None``, as for all numbers below, if it is not known.
        key_heads: Number of key and value heads in the cache, or before they are copied for the product; ``heads`` is a
            multiple of it.
        head_dim: Size of a head of query and key.
        value_head_dim: Size of a head of value.
        scale: Factor of the products of query and key, applied before them, after them or in the operator, whose
            default counts; 1 if there is none. ``None`` if it is computed from inputs of the model, or not known.
        factors: Factors of ``scale``, if there are several; empty otherwise.
        mask: Parts that hide or weigh positions. ``causal``: keys after the query are hidden, by the operator or by
            comparing positions. ``input``: computed from an input of the model such as ``attention_mask``. ``lengths``:
            the operator gets the number of positions. ``alibi``: the positions times a slope for each head are added.
            ``bias``: other numbers are added, learned ones mostly. ``None`` if these may not be all.
        softcap: The scores become ``softcap * tanh(scores / softcap)``; ``None`` if they are not capped, or that is not
            known (``mask`` is ``None`` then, too).
        sinks: Whether something takes a share of the Softmax that is not a position; ``None`` if that is not known.
        window: Number of positions that a query sees, itself included, if it does not see all before it.
        window_in: ``"state"`` if the cache itself keeps no more than the window, whose size may be unknown then;
            ``"mask"`` if it keeps all positions and only the mask or the operator hides those before the window;
            ``None`` if there is no window.

    Examples:
        >>> import graphpass
        >>> block = graphpass.analyze_caches(graphpass.load("build/fixtures/llama/onnx")).attention[0]
        >>> block.form, block.heads, block.key_heads, block.head_dim, block.scale
        ('decomposed', 4, 2, 16, 0.25)
    """

    node: str
    form: str
    key: str | None = None
    value: str | None = None
    fusable: bool = True
    reason: str | None = None
    layer: int | None = None
    heads: int | None = None
    key_heads: int | None = None
    head_dim: int | None = None
    value_head_dim: int | None = None
    scale: float | None = None
    factors: tuple[float, ...] = ()
    mask: tuple[MaskPart, ...] | None = None
    softcap: float | None = None
    sinks: bool | None = None
    window: int | None = None
    window_in: Literal["state", "mask"] | None = None

    @property
    def is_windowed(self) -> bool:
        """Return whether it has a window, perhaps of unknown size."""
        return self.window is not None or self.window_in is not None


@dataclass(frozen=True, slots=True)
class Inventory:
    """All caches of a model, and the attention that reads them.

    Attributes:
        stateful: Whether the caches are variables inside the model.
        caches: By layer, key before value; caches of unknown layer last.
        attention: In execution order.
        unpaired_inputs: Inputs that look like a past but have no present.
        unpaired_outputs: Outputs that look like a present but have no past.

    Examples:
        >>> import graphpass
        >>> inventory = graphpass.analyze_caches(graphpass.load("build/fixtures/lfm2/ov-stateful"))
        >>> inventory.kind, inventory.stateful
        ('hybrid', True)
    """

    stateful: bool
    caches: tuple[Cache, ...]
    attention: tuple[AttentionBlock, ...] = ()
    unpaired_inputs: tuple[str, ...] = ()
    unpaired_outputs: tuple[str, ...] = ()

    @property
    def kind(self) -> ModelKind:
        """The model's kind; cross caches and other carried tensors do not count."""
        kinds = {cache.kind for cache in self.caches}
        if {"kv", "linear"} <= kinds:
            return "hybrid"
        if "kv" in kinds:
            return "kv"
        return "linear" if "linear" in kinds else "none"

    @property
    def windowed(self) -> frozenset[str | None]:
        """Return the names of the caches that store no more than a window."""
        blocks = [block for block in self.attention if block.window_in == "state"]
        return frozenset(name for block in blocks for name in (block.key, block.value))

    def cache(self, name: str) -> Cache:
        """Return the cache called ``name``; raise `KeyError` if there is none."""
        for cache in self.caches:
            if cache.name == name:
                return cache
        raise KeyError(name)

    def of_kind(self, *kinds: CacheKind) -> tuple[Cache, ...]:
        """Return the caches of these kinds, in order."""
        return tuple(cache for cache in self.caches if cache.kind in kinds)
