"""Describe the order of a cache's elements in memory, in one vocabulary.

A cache has logical axes: ``layer``, ``block`` (a page of positions), ``batch``, ``heads``, ``sequence`` and ``content``
(elements of one head at one position). Their logical order is always this one, as in vLLM (RFC vllm#42082). A layout is
their physical order, and the way in which key and value share a tensor.

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

#: Key and value apart, side by side along the content axis, or along an axis of two entries.
Packing = Literal["separate", "content", "axis"]

Part = Literal["key", "value"]

Entry = TypeVar("Entry")

#: The logical order; the pair of key and value belongs to the content.
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

#: Layouts of vLLM's pool of blocks (vllm/v1/kv_cache_layout.py): B is the block there, N a position in it, C the
#: content, in which it packs key and value.
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
    """Number of entries of a cache along each logical axis.

    Attributes:
        content: Elements of one head at one position as key: ``(head_dim,)``. A linear state may keep a matrix:
            ``(channels, kernel)``.
        value: The same as value; ``None`` if it equals ``content``.
        layer: Layers in one tensor.
        block: Blocks in a pool.
        batch: Sequences.
        heads: Heads; 1 if the cache has no heads.
        sequence: Positions, of one block if there are blocks; 1 for a state that does not grow.
    """

    content: tuple[int, ...]
    value: tuple[int, ...] | None = None
    layer: int = 1
    block: int = 1
    batch: int = 1
    heads: int = 1
    sequence: int = 1

    def content_of(self, part: Part) -> tuple[int, ...]:
        """Return the sizes of the content of ``part``."""
        return self.value if part == "value" and self.value is not None else self.content


@dataclass(frozen=True, slots=True)
class KVLayout:
    """The physical order of a cache's axes, and how key and value share a tensor.

    As text: a letter for each axis from the outermost on (``L`` layer, ``P`` block or page, ``B`` batch, ``H`` heads,
    ``S`` sequence, ``D`` content, ``2`` the pair of key and value), then ``+packed`` if the content axis holds the key
    and after it the value, or ``+value-transposed`` if values have sequence and content swapped. vLLM's names are
    known, too: ``LBHNC`` (``HND``), ``LBNHC`` (``NHD``), ``LHBNC``, ``BLHNC``, ``BLNHC``, ``BHLNC``.

    Attributes:
        order: The axes that the tensor has, outermost first. It has one entry along those that are left out.
        packing: Way in which key and value share a tensor. With ``axis`` the order has ``pair``.
        value_transposed: Whether values have ``sequence`` and ``content`` swapped.
    """

    order: tuple[AxisName, ...]
    packing: Packing = "separate"
    value_transposed: bool = False

    def __post_init__(self) -> None:
        """Check that the parts fit; raise GP213 if not."""
        for problem, holds in {
            "an axis stands there twice": len(set(self.order)) < len(self.order),
            "it has no content": "content" not in self.order,
            "key and value share an axis or the content, not both": ("pair" in self.order) != (self.packing == "axis"),
            "values that share a tensor with keys lie as keys do": self.value_transposed and self.packing != "separate",
            "values without a sequence cannot be transposed": self.value_transposed and "sequence" not in self.order,
        }.items():
            if holds:
                raise UsageError(
                    "GP213", f"{''.join(_letter(axis) for axis in self.order)!r} is not a layout: {problem}"
                )

    @classmethod
    def parse(cls, text: str) -> KVLayout:
        """Read the text of a layout, or one of vLLM's names; raise GP213 on others."""
        letters, *marks = _ALIASES.get(text, text).split("+")
        wrong = [letter for letter in letters if letter not in _LETTERS]
        wrong += [mark for number, mark in enumerate(marks) if mark not in {_PACKED, _TRANSPOSED} - set(marks[:number])]
        if wrong or not letters:
            raise UsageError(
                "GP213",
                f"{text!r} is not a layout" + (f": {wrong[0]!r} means nothing" if wrong else ""),
                f"one letter an axis ({', '.join(f'{letter} {axis}' for letter, axis in _LETTERS.items())}), "
                f"for example BHSD, BSHD or BHSD+packed; or a name of vLLM's: {', '.join(_ALIASES)}",
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
        """Return the shape of the tensor that holds ``part``.

        Raises:
            UnsupportedError: GP382, ``sizes`` has several entries along an axis that this layout does not have; or
                key and value shall share an axis and differ in size.
        """
        extents = self._extents(sizes, part)
        return tuple(size for axis in self.of(part) for size in extents[axis])

    def sizes(self, shape: Iterable[int], value_shape: Iterable[int] | None = None, *, key: int = 0) -> KVSizes:
        """Return the sizes that give a shape: the inverse of `shape`.

        Args:
            shape: Shape of the key, or of the tensor that holds both; content takes surplus axes.
            value_shape: Shape of the value; as the key's by default.
            key: Size of the key along a packed content axis.

        Raises:
            UnsupportedError: GP382 the shape has too few axes, or none of two entries for the pair, or key and value
                contradict each other; GP381 the content is packed and ``key`` is not given.
        """
        by_axis = self._by_axis(shape, "key")
        content, value = by_axis["content"], None
        if self.packing == "axis" and by_axis["pair"] != (2,):
            raise UnsupportedError("GP382", f"layout {self}: key and value are 2 entries, not {by_axis['pair'][0]}")
        if self.packing == "content":
            if not 0 < key < content[-1]:
                raise UnsupportedError(
                    "GP381",
                    f"how much of {content[-1]} is key, and how much value, cannot be inferred",
                    "state key=SIZE",
                )
            content, value = (*content[:-1], key), (*content[:-1], content[-1] - key)
        elif value_shape is not None:
            others = self._by_axis(value_shape, "value")
            value = others["content"]
            if others | {"content": content} != by_axis:
                raise UnsupportedError("GP382", f"key and value are not of one size: {by_axis} and {others}")
        rest = {axis: extent[0] for axis, extent in by_axis.items() if axis not in {"content", "pair"}}
        return KVSizes(content, None if value == content else value, **rest)

    def transposition(self, other: KVLayout, part: Part = "key") -> tuple[int, ...]:
        """Return the order by which a Transpose leads from ``other`` to this layout.

        Raises:
            UnsupportedError: GP382, the two do not have the same axes, or pack otherwise.
        """
        old, new = other.of(part), self.of(part)
        if set(old) != set(new) or self.packing != other.packing:
            raise UnsupportedError("GP382", f"no order of axes leads from layout {other} to {self}")
        return tuple(old.index(axis) for axis in new)

    def strides(self, sizes: KVSizes, part: Part = "key") -> dict[AxisName, int]:
        """Return the distance of neighbours along each axis, in elements.

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
        """Return the first byte of one head's content at one position.

        Args:
            sizes: Sizes of the cache.
            element_type: OpenVINO's short name.
            part: Key or value.
            layer: Number of the layer.
            batch: Number of the sequence.
            head: Number of the head.
            slot: Position; in a pool of blocks, the block times the positions of a block, plus the place in it.

        Raises:
            UnsupportedError: GP382 as `shape`, or there is no such place; GP383 the type has no whole bytes.
        """
        extents, strides = self._extents(sizes, part), self.strides(sizes, part)
        place: dict[AxisName, int] = {"layer": layer, "batch": batch, "heads": head}
        place["block"], place["sequence"] = divmod(slot, sizes.sequence)
        for axis, index in place.items():
            if not 0 <= index < extents.get(axis, (1,))[0]:
                raise UnsupportedError("GP382", f"there is no {axis} {index} in layout {self} of {sizes}")
        place["pair"] = int(part == "value")
        first = math.prod(sizes.content) if self.packing == "content" and part == "value" else 0
        elements = first * strides["content"] + sum(place.get(axis, 0) * stride for axis, stride in strides.items())
        return elements * _whole_bytes(element_type)

    def bytes_per_token(self, sizes: KVSizes, element_type: str) -> int:
        """Return the bytes of one position: key and value, all heads and layers.

        Raises:
            UnsupportedError: GP383, the type has no whole bytes.
        """
        elements = math.prod(sizes.content_of("key")) + math.prod(sizes.content_of("value"))
        return sizes.layer * sizes.heads * elements * _whole_bytes(element_type)

    def _extents(self, sizes: KVSizes, part: Part) -> Mapping[AxisName, tuple[int, ...]]:
        keys, values = sizes.content_of("key"), sizes.content_of("value")
        content = sizes.content_of(part)
        if self.packing == "axis" and keys != values:
            raise UnsupportedError("GP382", f"keys of {keys} and values of {values} elements do not share an axis")
        if self.packing == "content":
            # A content of several dimensions is packed flat.
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
                raise UnsupportedError("GP382", f"layout {self} has no axis for {entries[axis][0]} entries of {axis}")
        return {axis: entries[axis] for axis in self.order}

    def _by_axis(self, shape: Iterable[int], part: Part) -> dict[AxisName, tuple[int, ...]]:
        sizes, order = tuple(shape), self.of(part)
        more = len(sizes) - len(order)
        if more < 0 or (more and self.packing == "content"):
            raise UnsupportedError("GP382", f"shape {list(sizes)} has not the axes of layout {self}")
        by_axis: dict[AxisName, tuple[int, ...]] = {}
        for axis in order:
            taken = 1 + more if axis == "content" else 1
            by_axis[axis], sizes = sizes[:taken], sizes[taken:]
        return by_axis


def layout_of(cache: Cache) -> KVLayout:
    """Return the layout of ``cache`` by the axes that the dataflow shows.

    A linear state has no sequence; its content is all but the batch.

    Raises:
        UnsupportedError: GP381, it is not known: an axis is none of batch, heads, sequence and head_dim.
    """
    axes, rank = cache.axes, len(cache.shape) if cache.shape is not None else None
    places: dict[AxisName, int | None] = {"batch": axes.batch, "heads": axes.heads, "sequence": axes.sequence}
    if cache.kind != "linear":
        places["content"] = axes.head_dim
    named: dict[int, AxisName] = {place: axis for axis, place in places.items() if place is not None}
    if rank is None or (cache.kind != "linear" and (axes.sequence is None or axes.head_dim is None)):
        raise UnsupportedError("GP381", f"cannot infer the layout of cache {cache.name}: {_known(cache)}")
    order: list[AxisName] = []
    for place in range(rank):
        if place in named:
            order.append(named[place])
        elif cache.kind == "linear":
            order += [] if order and order[-1] == "content" else ["content"]
        else:
            raise UnsupportedError(
                "GP381",
                f"cannot infer the layout of cache {cache.name}: the graph does not show the role of axis {place}, and "
                f"its size does not either",
                "run unpack if it holds key and value",
            )
    if order.count("content") != 1:
        raise UnsupportedError("GP381", f"cannot infer the layout of cache {cache.name}: {_known(cache)}")
    return KVLayout(tuple(order))


def _known(cache: Cache) -> str:
    return f"all that is known of {list(cache.shape or ())} is {cache.axes}"


def _letter(axis: AxisName) -> str:
    return next(letter for letter, name in _LETTERS.items() if name == axis)


def _whole_bytes(element_type: str) -> int:
    size = element_bytes(element_type)
    if not size or size != int(size):
        raise UnsupportedError("GP383", f"{element_type} has no whole bytes, so offsets in it are not counted in bytes")
    return int(size)
