"""Writes rotary embedding in ONNX's plain operators, in the form that Transformers' exports have."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from graphpass.dialects.onnx.rewrite import NodeWriter

__all__ = ["angles", "rotated"]


def angles(writer: NodeWriter, cache: str, positions: str, *, interleaved: bool) -> str:
    """Cosines or sines of ``positions``, one for each element that is rotated.

    Args:
        writer: Writes them.
        cache: The table ``[positions, rotary_dim / 2]``.
        positions: i64 ``[batch, length]``.
        interleaved: Whether pairs are neighbours, not the two halves.

    Returns:
        ``[batch, 1, length, rotary_dim]``.
    """
    half = writer.op("Unsqueeze", writer.op("Gather", cache, positions, axis=0), writer.integers([1]))
    return doubled(writer, half, interleaved=interleaved)


def doubled(writer: NodeWriter, half: str, *, interleaved: bool) -> str:
    """``[.., rotary_dim]`` of angles ``[.., rotary_dim / 2]`` with four axes: one for each element of a pair."""
    if not interleaved:
        return writer.op("Concat", half, half, axis=3)
    pairs = writer.op("Unsqueeze", half, writer.integers([4]))
    return writer.op("Reshape", writer.op("Concat", pairs, pairs, axis=4), writer.integers([0, 0, 0, -1]))


def rotated(writer: NodeWriter, value: str, cos: str, sin: str, sizes: tuple[int, int], *, interleaved: bool) -> str:
    """``value`` with its positions turned in.

    Args:
        writer: Writes it.
        value: ``[batch, heads, length, head_dim]``.
        cos: ``[batch, 1, length, rotary_dim]``.
        sin: The same.
        sizes: head_dim and rotary_dim; elements of a head beyond rotary_dim stay as they are.
        interleaved: Whether pairs are neighbours, not the two halves.
    """
    whole, turning = sizes
    kept = writer.slice(value, turning, whole, 3) if turning < whole else ""
    if kept:
        value = writer.slice(value, 0, turning, 3)
    turned = _quarter_turn_of_pairs(writer, value) if interleaved else _quarter_turn_of_halves(writer, value, turning)
    result = writer.op("Add", writer.op("Mul", value, cos), writer.op("Mul", turned, sin))
    return writer.op("Concat", result, kept, axis=3) if kept else result


def _quarter_turn_of_halves(writer: NodeWriter, value: str, size: int) -> str:
    first, second = writer.slice(value, 0, size // 2, 3), writer.slice(value, size // 2, size, 3)
    return writer.op("Concat", writer.op("Neg", second), first, axis=3)


def _quarter_turn_of_pairs(writer: NodeWriter, value: str) -> str:
    split = writer.op("Reshape", value, writer.integers([0, 0, 0, -1, 2]))
    first, second = writer.slice(split, 0, 1, 4), writer.slice(split, 1, 2, 4)
    turned = writer.op("Concat", writer.op("Neg", second), first, axis=4)
    return writer.op("Reshape", turned, writer.integers([0, 0, 0, -1]))
