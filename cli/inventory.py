"""What a model holds, as text: what is alike in one line, or all of it with the evidence."""

from __future__ import annotations

import contextlib
from dataclasses import asdict
from typing import TYPE_CHECKING

from graphpass.dialects.openvino.runtime_options import runtime_options
from graphpass.reports.attention import attention_in_words, form_in_words, group_attention
from graphpass.reports.layers import layers_in_words

from .console import columns
from .sizes import sizes_of, totals_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from graphpass.engine.view import View
    from graphpass.ir.cache import Axes, Cache, Inventory
    from graphpass.ir.model import Model
    from graphpass.ir.types import Dimension

__all__ = ["as_text", "in_short", "runs_with"]

_FORMATS = {"onnx": "ONNX", "openvino": "OpenVINO IR"}


def as_text(model: Model, inventory: Inventory, views: Sequence[View], *, unfolded: bool = False) -> str:
    """What ``graphpass inspect`` prints.

    Args:
        model: The model.
        inventory: Its inventory.
        views: What others take its caches for.
        unfolded: Whether each cache is told by itself, with the evidence, and each view with its reasons.
    """
    from graphpass.targets.consumers.summary import warnings_of

    state = "stateful" if inventory.stateful else "stateless"
    lines = [f"{model.path}: {_FORMATS[model.dialect]}, {state}, kind {inventory.kind}"]
    pasts = {cache.read for cache in inventory.caches} | {cache.write for cache in inventory.caches}
    for word, ports in (("inputs", model.inputs), ("outputs", model.outputs)):
        plain = [port for port in ports if port.name not in pasts]
        lines += ["", _heading(word, len(plain), len(ports) - len(plain))]
        lines += columns([(port.name, port.element_type, _shape(port.shape)) for port in plain]) if plain else []
    if options := runtime_options(model):
        lines += ["", f"runtime options ({len(options)})", *columns(list(options.items()))]
    lines += ["", f"caches ({len(inventory.caches)})"]
    layouts = _layouts(model, inventory)
    lines += (_unfolded_caches if unfolded else _folded_caches)(inventory.caches, layouts)
    lines += [f"  {line}" for line in totals_of(inventory)]
    lines += ["", f"attention ({len(inventory.attention)})"]
    lines += _unfolded_attention(inventory) if unfolded else _folded_attention(inventory)
    if inventory.caches:
        lines += ["", "as others see it", *(_unfolded_views(views) if unfolded else _folded_views(views))]
    warnings = warnings_of(inventory, views)
    if warnings:
        lines += ["", f"warnings ({len(warnings)})", *(f"  {warning}" for warning in warnings)]
    return "\n".join(lines)


def in_short(model: Model, inventory: Inventory) -> str:
    """One line."""
    state = "stateful" if inventory.stateful else "stateless"
    kinds = _counts(cache.kind for cache in inventory.caches)
    caches = ", ".join(f"{count} {kind}" for kind, count in kinds.items()) or "no"
    forms = _counts(map(form_in_words, inventory.attention))
    attention = "; ".join(f"{count} {form}" for form, count in forms.items()) or "no attention"
    return f"{_FORMATS[model.dialect]}, {state}, kind {inventory.kind}, {caches} caches, {attention}"


def runs_with(model: Model) -> list[str]:
    """A line with the options that plugins take from a model; none where it sets none."""
    options = runtime_options(model)
    return [f"runs with {', '.join(f'{name}={value}' for name, value in options.items())}"] if options else []


def _heading(word: str, plain: int, caches: int) -> str:
    return f"{word} ({plain}{f', and {caches} of caches' if caches else ''})"


def _layouts(model: Model, inventory: Inventory) -> dict[str, str]:
    """The layout of each cache that grows, by name, where it is told and is not the common one."""
    from graphpass.analysis.caches.parts import packed_caches, packed_layout
    from graphpass.errors import UnsupportedError
    from graphpass.ir.layout import layout_of

    packed = set(packed_caches(inventory))
    found: dict[str, str] = {}
    for cache in inventory.of_kind("kv"):
        with contextlib.suppress(UnsupportedError):
            found[cache.name] = str(packed_layout(model, cache) if cache in packed else layout_of(cache))
    return {name: layout for name, layout in found.items() if layout != "BHSD"}


def _folded_caches(caches: tuple[Cache, ...], layouts: Mapping[str, str]) -> list[str]:
    """A line for all layers whose caches are alike; roles that are alike, key and value mostly, share one."""
    groups: dict[tuple[str, ...], list[Cache]] = {}
    for cache in caches:
        alike = (cache.role, cache.kind, cache.element_type, _laid_out(cache, layouts))
        groups.setdefault(alike, []).append(cache)
    lines: dict[tuple[str, ...], list[Cache]] = {}
    for (_, *words), group in groups.items():
        lines.setdefault((layers_in_words(cache.layer for cache in group), *words), []).extend(group)
    rows = []
    for (layers, *words), group in lines.items():
        roles = ", ".join(dict.fromkeys(cache.role for cache in group))
        rows.append((layers, roles, *words, sizes_of(group)))
    return columns(rows) if rows else []


def _laid_out(cache: Cache, layouts: Mapping[str, str]) -> str:
    return " ".join([_shape(cache.shape, cache.axes), *([layouts[cache.name]] if cache.name in layouts else [])])


def _unfolded_caches(caches: tuple[Cache, ...], layouts: Mapping[str, str]) -> list[str]:
    lines = []
    for cache in caches:
        told = (
            layers_in_words([cache.layer]),
            cache.role,
            cache.kind,
            cache.element_type,
            _laid_out(cache, layouts),
        )
        size = sizes_of([cache])
        lines += ["", f"  {cache.name}", f"    {'  '.join((*told, size) if size else told)}"]
        lines += [f"    {cache.read} -> {cache.write or 'only read'}", *(f"    {fact}" for fact in cache.evidence)]
    return [*lines, ""] if lines else []


def _shape(shape: tuple[Dimension, ...] | None, axes: Axes | None = None) -> str:
    if shape is None:
        return "of any rank"
    names = {position: name for name, position in asdict(axes).items()} if axes is not None else {}
    sizes = ["?" if size is None else str(size) for size in shape]
    return f"[{', '.join(f'{names[axis]}={size}' if axis in names else size for axis, size in enumerate(sizes))}]"


def _folded_views(views: Sequence[View]) -> list[str]:
    verdicts: dict[str, list[str]] = {
        verdict: [] for verdict in ("agrees", "misreads", "cannot tell", "not applicable")
    }
    for view in views:
        verdicts[view.verdict].append(view.consumer)
    return columns([(verdict, ", ".join(names)) for verdict, names in verdicts.items() if names])


def _unfolded_views(views: Sequence[View]) -> list[str]:
    return [
        line for view in views for line in (f"  {view.consumer}: {view.verdict}", *(f"    {r}" for r in view.reasons))
    ]


def _folded_attention(inventory: Inventory) -> list[str]:
    """A line for all layers whose attention is alike."""
    return columns(
        [
            (group.layers, attention_in_words(group.blocks[0], is_cross=group.is_cross), form_in_words(group.blocks[0]))
            for group in group_attention(inventory)
        ]
    )


def _unfolded_attention(inventory: Inventory) -> list[str]:
    lines = []
    for group in group_attention(inventory):
        for block in group.blocks:
            caches = ", ".join(dict.fromkeys(name for name in (block.key, block.value) if name is not None))
            sizes = f"head_dim {_or_unknown(block.head_dim)}, value head_dim {_or_unknown(block.value_head_dim)}"
            lines += ["", f"  {block.node}", f"    {layers_in_words([block.layer])}  {form_in_words(block)}"]
            lines += [f"    {attention_in_words(block, is_cross=group.is_cross)}", f"    {sizes}"]
            lines += [f"    reads {caches or 'no cache'}"]
    return [*lines, ""] if lines else []


def _or_unknown(size: int | None) -> str:
    return "unknown" if size is None else str(size)


def _counts(words: Iterable[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for word in words:
        found[word] = found.get(word, 0) + 1
    return found
