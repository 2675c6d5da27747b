"""Data classes for the caches of a model: the inventory."""

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

#: A component of a mask that excludes positions or biases their scores; see `AttentionBlock`.
MaskPart = Literal["causal", "input", "lengths", "alibi", "bias"]

#: Metadata key of a model whose caches are trimmed in a form that one version of an OpenVINO plugin requires; see
#: `insert-reorder`.
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


#: The layout of keys and values that attention reads and most runtimes require: batch, heads, sequence, head_dim.
BHSD = Axes(0, 1, 2, 3)


@dataclass(frozen=True, slots=True)
class Cache:
    """One tensor carried from one step to the next.

    Attributes:
        name: Variable id of a stateful cache, name of the past input of a stateless one.
        kind: Change of the cache at each step:

            - ``kv`` grows along the sequence axis.
            - ``linear`` is replaced at each step.
            - ``cross`` is only read.
            - ``other`` is carried, but is not a cache of a decoder.
            - ``unknown`` has no conclusive evidence.
        role: The stored data. An ``indexer_key`` scores positions for a TopK, which selects the positions that
            attention reads. Roles of kind ``other`` are ``adapter`` (adapter weights), ``counter`` (a count), and
            ``recurrent`` (the state of an ordinary LSTM, GRU or RNN).
        layer: Index of its layer among the layers with caches, from 0; ``None`` if unknown.
        axes: Indices of the logical axes.
        shape: The declared shape, with symbols and unknown dimensions as in the model.
        element_type: OpenVINO's short name.
        read: Name of the past input, or of the ReadValue.
        write: Name of the present output, or of the Assign; ``None`` for a cache that is only read.
        evidence: Reasons for kind and role, one fact per line.
        bits: Bits of a quantized value, which is multiplied by a scale; ``None`` if the cache is not quantized. Two
            values of 4 bits share one element.

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
        """Return the storage type of one value; several values may share an element."""
        return self.element_type if self.bits is None else f"i{self.bits}"

    @property
    def value_shape(self) -> tuple[Dimension, ...] | None:
        """Return the shape in values rather than elements."""
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
        """Return the number of positions that fit; ``None`` if not fixed."""
        return self.size(self.axes.sequence)

    @property
    def index(self) -> int | None:
        """Return the first integer in the name: the layer or an index within one kind.

        Transformers' exporters number the states of a layer after it: ``past_key_values.layers.2.conv_states.0``.
        """
        number = re.search(r"\d+", self.name)
        return None if number is None else int(number[0])

    @property
    def filled_by(self) -> str:
        """Return the name of the output of another model that computes the cache.

        Exporters replace ``past_key_values`` by ``present``, the builder of onnxruntime-genai replaces ``past``.
        """
        return re.sub("past(_key_values)?", "present", self.read, count=1)

    @property
    def bytes_per_token(self) -> int | None:
        """Return the bytes of one position; ``None`` without growth or known sizes."""
        return self._bytes() if self.axes.sequence is not None else None

    @property
    def fixed_bytes(self) -> int | None:
        """Return the bytes of one row, independent of length; ``None`` if the cache grows."""
        return self._bytes() if self.axes.sequence is None else None

    def _bytes(self) -> int | None:
        total = element_bytes(self.element_type)
        for axis, dimension in enumerate(self.shape or (None,)):
            if axis not in {self.axes.batch, self.axes.sequence}:
                total *= dimension if isinstance(dimension, int) else 0
        return int(total) or None


@dataclass(frozen=True, slots=True)
class AttentionBlock:
    """One attention block.

    Attributes:
        node: Name of its node: the fused operator, or the Softmax.
        form: ``"decomposed"``, or the operator's type (``"ScaledDotProductAttention"``, ``"GroupQueryAttention"``).
        key: Name of the cache that supplies keys; ``None`` if keys come from no cache.
        value: Name of the cache that supplies values; equal to ``key`` if one cache stores both.
        fusable: Whether `fuse-attention` can express the block; ``True`` if it is fused already.
        reason: Why the block is not fusable.
        layer: Layer of its caches; ``None`` if it has no caches or their layer is unknown.
        heads: Number of query heads; ``None`` if unknown. The same holds for all numbers below.
        key_heads: Number of kv heads in the cache, or before they are repeated for the product; divides ``heads``.
        head_dim: Size of a head of query and key.
        value_head_dim: Size of a head of value.
        scale: Factor of the scores: applied before or after the product of query and key, or by the operator, whose
            default counts. 1 without a factor; ``None`` if unknown or computed from inputs of the model.
        factors: Factors of ``scale``, if there are several; empty otherwise.
        mask: Components of the effective mask and the bias; ``None`` if there may be further components.

            - ``causal``: keys after the query are excluded, by the operator or by comparing positions.
            - ``input``: computed from an input of the model, such as ``attention_mask``.
            - ``lengths``: the operator reads the number of positions.
            - ``alibi``: positions times a slope per head are added.
            - ``bias``: other values are added, usually learned ones.
        softcap: The scores become ``softcap * tanh(scores / softcap)``; ``None`` if they are not capped, or if the cap
            is unknown (then ``mask`` is ``None``, too).
        sinks: Whether the Softmax includes a logit of no position; ``None`` if unknown.
        window: Number of latest positions that a query attends to, itself included; ``None`` without a window.
        window_in: The part that limits attention to the window: ``"state"`` if the cache stores only the window, whose
            size may be unknown; ``"mask"`` if the cache stores all positions and the mask or the operator excludes
            earlier ones; ``None`` without a window.

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
        """Return whether the block has a window, possibly of unknown size."""
        return self.window is not None or self.window_in is not None


@dataclass(frozen=True, slots=True)
class Inventory:
    """All caches of a model, and its attention blocks.

    Attributes:
        stateful: Whether the caches are variables.
        caches: Sorted by layer, key before value; caches of unknown layer last.
        attention: In execution order.
        unpaired_inputs: Inputs named like a past, without a present.
        unpaired_outputs: Outputs named like a present, without a past.

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
        """Return the model's kind; caches of kind ``cross`` and ``other`` are ignored."""
        kinds = {cache.kind for cache in self.caches}
        if {"kv", "linear"} <= kinds:
            return "hybrid"
        if "kv" in kinds:
            return "kv"
        return "linear" if "linear" in kinds else "none"

    @property
    def windowed(self) -> frozenset[str | None]:
        """Return the names of the caches that store only a window."""
        blocks = [block for block in self.attention if block.window_in == "state"]
        return frozenset(name for block in blocks for name in (block.key, block.value))

    def cache(self, name: str) -> Cache:
        """Return the cache named ``name``.

        Raises:
            KeyError: No cache has this name.
        """
        for cache in self.caches:
            if cache.name == name:
                return cache
        raise KeyError(name)

    def of_kind(self, *kinds: CacheKind) -> tuple[Cache, ...]:
        """Return the caches of these kinds, in order."""
        return tuple(cache for cache in self.caches if cache.kind in kinds)
