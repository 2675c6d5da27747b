"""Layouts: the order of a cache's elements in memory.

The logical axes of a cache are, in this order, ``layer``, ``block`` (a page of positions), ``batch``, ``heads``,
``sequence`` and ``content`` (the elements of one head at one position), as in vLLM (RFC vllm#42082). A layout is their
physical order, and the packing of key and value.

>>> KVLayout.parse("BSHD").shape(KVSizes(batch=2, heads=8, sequence=5, content=(64,)))
(2, 5, 8, 64)
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeVar, get_args

from graphpass.errors import UnsupportedError, UsageError
from graphpass.ir.cache import Cache
from graphpass.ir.element_types import element_bytes

AxisName = Literal["layer", "block", "batch", "heads", "sequence", "pair", "content"]

#: Key and value in separate tensors, concatenated along the content axis, or along an axis of size 2.
Packing = Literal["separate", "content", "axis"]

Part = Literal["key", "value"]

Entry = TypeVar("Entry")

#: The logical order; ``pair`` is part of the content.
_AXES: tuple[AxisName, ...] = get_args(AxisName)

_LETTERS: dict[str, AxisName] = {
    "L": "layer",
    "P": "block",
    "B": "batch",
    "H": "heads",
    "S": "sequence",
    "2": "pair",
    "D": "content",
}

#: Layouts of vLLM's pool of blocks (vllm/v1/kv_cache_layout.py). In these names B is the block, N a position in the
#: block, and C the content, in which key and value are packed.
_VLLM = {
    "LBHNC": "LPHSD+packed",
    "LBNHC": "LPSHD+packed",
    "LHBNC": "LHPSD+packed",
    "BLHNC": "PLHSD+packed",
    "BLNHC": "PLSHD+packed",
    "BHLNC": "PHLSD+packed",
}

_ALIASES = _VLLM | {"HND": _VLLM["LBHNC"], "NHD": _VLLM["LBNHC"]}

_PACKED, _TRANSPOSED = "packed", "value-transposed"


@dataclass(frozen=True, slots=True)
class KVSizes:
    """Sizes of the logical axes of a cache.

    Attributes:
        content: Shape of the key of one head at one position: ``(head_dim,)``. A linear state may be a matrix:
            ``(channels, kernel)``.
        value: The same for the value; ``None`` if equal to ``content``.
        layer: Number of layers in one tensor.
        block: Number of blocks in a pool.
        batch: Number of rows.
        heads: Number of heads; 1 if the cache has no heads axis.
        sequence: Number of positions, in one block if there are blocks; 1 for a state that does not grow.
    """

    content: tuple[int, ...]
    value: tuple[int, ...] | None = None
    layer: int = 1
    block: int = 1
    batch: int = 1
    heads: int = 1
    sequence: int = 1

    def content_of(self, part: Part) -> tuple[int, ...]:
        """Return the shape of one head at one position, for key or value."""
        return self.value if part == "value" and self.value is not None else self.content


@dataclass(frozen=True, slots=True)
class KVLayout:
    """The physical order of a cache's axes, and the packing of key and value.

    As text, a layout has one letter per axis, outermost first: ``L`` layer, ``P`` block or page, ``B`` batch, ``H``
    heads, ``S`` sequence, ``D`` content, ``2`` the pair of key and value. ``+packed`` follows if the content axis
    concatenates key and value, ``+value-transposed`` if values have sequence and content swapped. vLLM's names are
    accepted, too: ``LBHNC`` (``HND``), ``LBNHC`` (``NHD``), ``LHBNC``, ``BLHNC``, ``BLNHC``, ``BHLNC``.

    Attributes:
        order: The axes of the tensor, outermost first. Omitted axes have size 1.
        packing: Arrangement of key and value in tensors. ``axis`` requires ``pair`` in the order.
        value_transposed: Whether values have ``sequence`` and ``content`` swapped.
    """

    order: tuple[AxisName, ...]
    packing: Packing = "separate"
    value_transposed: bool = False

    def __post_init__(self) -> None:
        """Check that order, packing and transposition are consistent.

        Raises:
            UsageError: GP213, the three are inconsistent.
        """
        has_pair, is_packed = "pair" in self.order, self.packing != "separate"
        for problem, holds in {
            "an axis occurs twice": len(set(self.order)) < len(self.order),
            "the content axis (D) is missing": "content" not in self.order,
            "key and value share either an axis (2) or the content (+packed)": has_pair != (self.packing == "axis"),
            "+value-transposed requires key and value in separate tensors": self.value_transposed and is_packed,
            "+value-transposed requires a sequence axis (S)": self.value_transposed and "sequence" not in self.order,
        }.items():
            if holds:
                raise UsageError(
                    "GP213", f"{''.join(_letter(axis) for axis in self.order)!r} is not a layout: {problem}"
                )

    @classmethod
    def parse(cls, text: str) -> KVLayout:
        """Read a layout's text, or one of vLLM's names.

        Returns:
            The layout, with key and value in separate tensors unless ``text`` states a packing.

        Raises:
            UsageError: GP213, ``text`` is neither.
        """
        letters, *marks = _ALIASES.get(text, text).split("+")
        wrong = [letter for letter in letters if letter not in _LETTERS]
        wrong += [mark for number, mark in enumerate(marks) if mark not in {_PACKED, _TRANSPOSED} - set(marks[:number])]
        if wrong or not letters:
            raise UsageError(
                "GP213",
                f"{text!r} is not a layout" + (f": unknown part {wrong[0]!r}" if wrong else ""),
                f"one letter per axis ({', '.join(f'{letter} {axis}' for letter, axis in _LETTERS.items())}), "
                f"for example BHSD, BSHD or BHSD+packed; or a name of vLLM: {', '.join(_ALIASES)}",
            )
        order = tuple(_LETTERS[letter] for letter in letters)
        packing: Packing = "content" if _PACKED in marks else "axis" if "pair" in order else "separate"
        return cls(order, packing, _TRANSPOSED in marks)

    def __str__(self) -> str:
        """Return the shortest text that `parse` reads; vLLM's name if there is one."""
        letters = "".join(_letter(axis) for axis in self.order)
        text = letters + f"+{_PACKED}" * (self.packing == "content") + f"+{_TRANSPOSED}" * self.value_transposed
        return next((name for name, meaning in _VLLM.items() if meaning == text), text)

    def of(self, part: Part) -> tuple[AxisName, ...]:
        """Return the physical order of keys, or of values."""
        if part == "key" or not self.value_transposed:
            return self.order
        swapped: dict[AxisName, AxisName] = {"sequence": "content", "content": "sequence"}
        return tuple(swapped.get(axis, axis) for axis in self.order)

    def shape(self, sizes: KVSizes, part: Part = "key") -> tuple[int, ...]:
        """Return the shape of the tensor with the keys or values of a cache.

        Args:
            sizes: Sizes of the cache.
            part: Key or value; without effect if both share a tensor.

        Raises:
            UnsupportedError: GP382, the layout lacks an axis whose size is not 1, or key and value share an axis and
                differ in size.
        """
        extents = self._extents(sizes, part)
        return tuple(size for axis in self.of(part) for size in extents[axis])

    def sizes(self, shape: Iterable[int], value_shape: Iterable[int] | None = None, *, key: int = 0) -> KVSizes:
        """Return the sizes of a cache with this shape: the inverse of `shape`.

        Args:
            shape: Shape of the key, or of the tensor with both; surplus axes belong to the content.
            value_shape: Shape of the value; equal to the key's by default.
            key: Size of the key along a packed content axis.

        Raises:
            UnsupportedError: GP382, the shape lacks axes of the layout, the pair axis does not have size 2, or key and
                value differ outside the content. GP381, the content is packed and ``key`` is missing.
        """
        by_axis = self._by_axis(shape, "key")
        content, value = by_axis["content"], None
        if self.packing == "axis" and by_axis["pair"] != (2,):
            raise UnsupportedError(
                "GP382", f"layout {self} requires 2 entries for key and value, got {by_axis['pair'][0]}"
            )
        if self.packing == "content":
            if not 0 < key < content[-1]:
                raise UnsupportedError(
                    "GP381",
                    f"cannot infer the sizes of key and value, which are {content[-1]} together",
                    "state key=SIZE",
                )
            content, value = (*content[:-1], key), (*content[:-1], content[-1] - key)
        elif value_shape is not None:
            others = self._by_axis(value_shape, "value")
            value = others["content"]
            if others | {"content": content} != by_axis:
                raise UnsupportedError(
                    "GP382", f"key and value differ in more than the content: {by_axis} and {others}"
                )
        rest = {axis: extent[0] for axis, extent in by_axis.items() if axis not in {"content", "pair"}}
        return KVSizes(content, None if value == content else value, **rest)

    def transposition(self, other: KVLayout, part: Part = "key") -> tuple[int, ...]:
        """Return the order of a Transpose that converts another layout to this one.

        Args:
            other: Layout of the Transpose's input.
            part: Key or value; they differ if one layout has ``value_transposed``.

        Raises:
            UnsupportedError: GP382, the layouts differ in their axes or their packing.
        """
        old, new = other.of(part), self.of(part)
        if set(old) != set(new) or self.packing != other.packing:
            raise UnsupportedError("GP382", f"a Transpose cannot convert layout {other} to {self}")
        return tuple(old.index(axis) for axis in new)

    def strides(self, sizes: KVSizes, part: Part = "key") -> dict[AxisName, int]:
        """Return the stride of each axis, in elements.

        Args:
            sizes: Sizes of the cache.
            part: Key or value; without effect if both share a tensor.

        Raises:
            UnsupportedError: GP382, as `shape`.
        """
        extents = self._extents(sizes, part)
        strides: dict[AxisName, int] = {}
        step = 1
        for axis in reversed(self.of(part)):
            strides[axis] = step
            step *= math.prod(extents[axis])
        return strides

    def offset(
        self,
        sizes: KVSizes,
        element_type: str,
        *,
        part: Part = "key",
        layer: int = 0,
        batch: int = 0,
        head: int = 0,
        slot: int = 0,
    ) -> int:
        """Return the byte offset of the content of one head at one position.

        Args:
            sizes: Sizes of the cache.
            element_type: OpenVINO's short name.
            part: Key or value.
            layer: Index of the layer.
            batch: Index of the row.
            head: Index of the head.
            slot: Index of the position; in a pool of blocks, the block's index times the positions of a block, plus the
                index in the block.

        Raises:
            UnsupportedError: GP382, as `shape`, or an index is out of range; GP383, an element is not a whole number of
                bytes.
        """
        extents, strides = self._extents(sizes, part), self.strides(sizes, part)
        index: dict[AxisName, int] = {"layer": layer, "batch": batch, "heads": head}
        index["block"], index["sequence"] = divmod(slot, sizes.sequence)
        for axis, number in index.items():
            if not 0 <= number < extents.get(axis, (1,))[0]:
                raise UnsupportedError("GP382", f"{axis} index {number} is out of range in layout {self} of {sizes}")
        index["pair"] = int(part == "value")
        first = math.prod(sizes.content) if self.packing == "content" and part == "value" else 0
        elements = first * strides["content"] + sum(index.get(axis, 0) * stride for axis, stride in strides.items())
        return elements * _whole_bytes(element_type)

    def bytes_per_token(self, sizes: KVSizes, element_type: str) -> int:
        """Return the bytes of one position: key and value, all heads and layers.

        Args:
            sizes: Sizes of the cache; ``batch``, ``block`` and ``sequence`` have no effect.
            element_type: OpenVINO's short name.

        Raises:
            UnsupportedError: GP383, an element is not a whole number of bytes.
        """
        elements = math.prod(sizes.content_of("key")) + math.prod(sizes.content_of("value"))
        return sizes.layer * sizes.heads * elements * _whole_bytes(element_type)

    def _extents(self, sizes: KVSizes, part: Part) -> Mapping[AxisName, tuple[int, ...]]:
        keys, values = sizes.content_of("key"), sizes.content_of("value")
        content = sizes.content_of(part)
        if self.packing == "axis" and keys != values:
            raise UnsupportedError(
                "GP382", f"key and value must have equal sizes to share an axis, got {keys}, {values}"
            )
        if self.packing == "content":
            # Content of several dimensions is flattened before packing.
            content = (math.prod(keys) + math.prod(values),)
        entries: dict[AxisName, tuple[int, ...]] = {
            "layer": (sizes.layer,),
            "block": (sizes.block,),
            "batch": (sizes.batch,),
            "heads": (sizes.heads,),
            "sequence": (sizes.sequence,),
            "pair": (2,),
            "content": content,
        }
        for axis in _AXES:
            if axis not in self.order and axis != "pair" and entries[axis] != (1,):
                raise UnsupportedError("GP382", f"layout {self} has no {axis} axis, got size {entries[axis][0]}")
        return {axis: entries[axis] for axis in self.order}

    def _by_axis(self, shape: Iterable[int], part: Part) -> dict[AxisName, tuple[int, ...]]:
        sizes, order = tuple(shape), self.of(part)
        more = len(sizes) - len(order)
        if more < 0 or (more and self.packing == "content"):
            raise UnsupportedError("GP382", f"shape {list(sizes)} does not fit the axes of layout {self}")
        by_axis: dict[AxisName, tuple[int, ...]] = {}
        for axis in order:
            taken = 1 + more if axis == "content" else 1
            by_axis[axis], sizes = sizes[:taken], sizes[taken:]
        return by_axis


def layout_of(cache: Cache) -> KVLayout:
    """Return the layout of ``cache`` from the axes that the dataflow determines.

    A linear state has no sequence; all its axes except the batch are content.

    Raises:
        UnsupportedError: GP381, the role of an axis is unknown.
    """
    axes, rank = cache.axes, len(cache.shape) if cache.shape is not None else None
    indices: dict[AxisName, int | None] = {"batch": axes.batch, "heads": axes.heads, "sequence": axes.sequence}
    if cache.kind != "linear":
        indices["content"] = axes.head_dim
    named: dict[int, AxisName] = {index: axis for axis, index in indices.items() if index is not None}
    if rank is None or (cache.kind != "linear" and (axes.sequence is None or axes.head_dim is None)):
        raise UnsupportedError("GP381", f"cannot infer the layout of cache {cache.name}: {_known(cache)}")
    order: list[AxisName] = []
    for index in range(rank):
        if index in named:
            order.append(named[index])
        elif cache.kind == "linear":
            order += [] if order and order[-1] == "content" else ["content"]
        else:
            raise UnsupportedError(
                "GP381",
                f"cannot infer the layout of cache {cache.name}: neither the graph nor its size determines the role of "
                f"axis {index}",
                "run unpack if it stores key and value",
            )
    if order.count("content") != 1:
        raise UnsupportedError("GP381", f"cannot infer the layout of cache {cache.name}: {_known(cache)}")
    return KVLayout(tuple(order))


def _known(cache: Cache) -> str:
    return f"of shape {list(cache.shape or ())} only {cache.axes} are known"


def _letter(axis: AxisName) -> str:
    return next(letter for letter, name in _LETTERS.items() if name == axis)


def _whole_bytes(element_type: str) -> int:
    size = element_bytes(element_type)
    if not size or size != int(size):
        raise UnsupportedError("GP383", f"an element of type {element_type} is not a whole number of bytes")
    return int(size)
