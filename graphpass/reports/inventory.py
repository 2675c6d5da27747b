"""Report on a model's inputs, outputs, caches and attention, as text and JSON (``schemas/inspect.json``)."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from graphpass.analysis.caches.encoders import is_encoder, is_pooled
from graphpass.analysis.caches.masks import find_masks
from graphpass.analysis.equations.angles import find_angles, find_learned_positions
from graphpass.dialects.openvino.runtime_options import runtime_options
from graphpass.engine.view import View
from graphpass.errors import UnsupportedError
from graphpass.ir.bodies import inlined
from graphpass.ir.cache import Axes, Cache, Inventory
from graphpass.ir.miss import Miss
from graphpass.ir.model import Model
from graphpass.ir.types import FORMATS, Dimension, Port
from graphpass.printable import on_one_line
from graphpass.reports.attention import (
    attention_in_words,
    form_in_words,
    group_attention,
    grouped_query_in_words,
    mask_in_words,
    positions_in_words,
)
from graphpass.reports.report import Report
from graphpass.reports.text import columns, in_bytes, layers_in_words
from graphpass.reports.totals import known_sum, total_bytes


def warnings_of(inventory: Inventory, views: Sequence[View]) -> tuple[str, ...]:
    """Return warnings about unknown caches, unpaired pasts or presents, and views that misread caches.

    Args:
        inventory: The caches by graphpass's analysis.
        views: The caches as other programs classify them.

    Returns:
        One sentence for each warning.
    """
    lines = [
        f"cannot determine the kind of {cache.name}: {cache.evidence[-1] if cache.evidence else 'no evidence'}"
        for cache in inventory.caches
        if cache.kind == "unknown"
    ]
    lines += [f"input {name} looks like a past but has no present" for name in inventory.unpaired_inputs]
    lines += [f"output {name} looks like a present but has no past" for name in inventory.unpaired_outputs]
    lines += [f"{view.consumer} {reason}" for view in views if view.verdict == "misreads" for reason in view.reasons]
    return tuple(lines)


@dataclass(frozen=True, slots=True)
class Inspection(Report):
    """Report on the inputs, outputs, caches and attention of a model.

    Attributes:
        model: The model.
        inventory: The caches and attention blocks, with evidence.
        views: The caches as other programs classify them.
        grouped_queries: The miss of `fuse-group-query-attention` at each decomposed attention block, by node; ``None``
            for blocks that it fuses.

    Examples:
        >>> import graphpass
        >>> graphpass.inspect("build/fixtures/llama/onnx").to_json()["format"]
        'onnx'
    """

    model: Model
    inventory: Inventory
    views: tuple[View, ...]
    grouped_queries: Mapping[str, Miss | None]

    def text(self, *, unfolded: bool = False) -> str:
        """Return the text of ``graphpass inspect``.

        Args:
            unfolded: Whether to print an entry for each cache, with the evidence, and the reasons of each view.
        """
        lines = [f"{on_one_line(str(self.model.path))}: {_form(self.model, self.inventory)}"]
        pasts = {cache.read for cache in self.inventory.caches} | {cache.write for cache in self.inventory.caches}
        for title, ports in (("inputs", self.model.inputs), ("outputs", self.model.outputs)):
            plain = [port for port in ports if port.name not in pasts]
            hidden = f", and {len(ports) - len(plain)} of caches" if len(plain) < len(ports) else ""
            lines += ["", f"{title} ({len(plain)}{hidden})"]
            lines += columns([(port.name, port.element_type, _shape(port.shape)) for port in plain])
        if options := runtime_options(self.model):
            lines += ["", f"runtime options ({len(options)})", *columns(list(options.items()))]
        lines += ["", f"caches ({len(self.inventory.caches)})"]
        layouts = _layouts(self.model, self.inventory)
        lines += (_unfolded_caches if unfolded else _folded_caches)(self.inventory.caches, layouts)
        lines += _totals(self.inventory)
        lines += ["", f"attention ({len(self.inventory.attention)})"]
        lines += _unfolded_attention(self.model, self.inventory) if unfolded else _folded_attention(self.inventory)
        lines += grouped_query_in_words(self.grouped_queries)
        if self.inventory.caches:
            lines += ["", "views of other programs", *(_unfolded_views if unfolded else _folded_views)(self.views)]
        if warnings := warnings_of(self.inventory, self.views):
            lines += ["", f"warnings ({len(warnings)})", *(f"  {on_one_line(warning)}" for warning in warnings)]
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """Return the object of ``--format json``."""
        return {
            "format": self.model.dialect,
            "kind": self.inventory.kind,
            "stateful": self.inventory.stateful,
            "caches": [cache_json(cache) for cache in self.inventory.caches],
            "attention": [asdict(block) for block in self.inventory.attention],
            "group_query_attention": [
                {"node": node, "miss": miss_json(miss)} for node, miss in self.grouped_queries.items()
            ],
            "inputs": [asdict(port) | {"shape": _numbers(port)} for port in self.model.inputs],
            "outputs": [asdict(port) | {"shape": _numbers(port)} for port in self.model.outputs],
            "runtime_options": runtime_options(self.model),
            "totals": asdict(total_bytes(self.inventory)),
            "views": [asdict(view) for view in self.views],
            "warnings": list(warnings_of(self.inventory, self.views)),
            "unpaired_inputs": list(self.inventory.unpaired_inputs),
            "unpaired_outputs": list(self.inventory.unpaired_outputs),
        }

    def to_html(self, title: str) -> str:
        """Return the page of ``graphpass inspect --html``."""
        from graphpass.reports.page import render

        return render(self.model, self.inventory, title)


def cache_json(cache: Cache) -> dict[str, Any]:
    """Return the object of a cache."""
    sizes = ("index", "bytes_per_token", "fixed_bytes")
    return asdict(cache) | {"shape": _numbers(cache)} | {name: getattr(cache, name) for name in sizes}


def miss_json(miss: Miss | None) -> dict[str, str] | None:
    """Return the object of a miss."""
    return None if miss is None else {"node": miss.node.name, "reason": miss.reason}


def _numbers(owner: Cache | Port) -> list[int | None] | None:
    # Names of symbolic dimensions depend on the exporter.
    return None if owner.shape is None else [size if isinstance(size, int) else None for size in owner.shape]


def inventory_in_short(model: Model, inventory: Inventory) -> str:
    """Return a description of a model in one line.

    Args:
        model: The model.
        inventory: Its caches and attention blocks.
    """
    kinds = Counter(cache.kind for cache in inventory.caches)
    caches = ", ".join(f"{count} {kind}" for kind, count in kinds.items()) or "no"
    forms = Counter(map(form_in_words, inventory.attention))
    attention = "; ".join(f"{count} {form}" for form, count in forms.items()) or "no attention"
    return f"{_form(model, inventory)}, {caches} caches, {attention}"


def _form(model: Model, inventory: Inventory) -> str:
    if is_encoder(model):
        return f"{FORMATS[model.dialect]}, encoder, {'pooled' if is_pooled(model) else 'not pooled'}"
    return f"{FORMATS[model.dialect]}, {'stateful' if inventory.stateful else 'stateless'}, kind {inventory.kind}"


def runs_with(model: Model) -> list[str]:
    """Return a line with the runtime options in a model; empty without options."""
    options = runtime_options(model)
    return [f"runs with {', '.join(f'{name}={value}' for name, value in options.items())}"] if options else []


def _layouts(model: Model, inventory: Inventory) -> dict[str, str]:
    from graphpass.analysis.caches.packed import packed_caches, packed_layout
    from graphpass.ir.layout import layout_of

    packed = set(packed_caches(inventory))
    layouts: dict[str, str] = {}
    for cache in inventory.of_kind("kv"):
        with contextlib.suppress(UnsupportedError):
            layouts[cache.name] = str(packed_layout(model, cache) if cache in packed else layout_of(cache))
    return {name: layout for name, layout in layouts.items() if layout != "BHSD"}


def _folded_caches(caches: tuple[Cache, ...], layouts: Mapping[str, str]) -> list[str]:
    groups: dict[tuple[str, ...], list[Cache]] = {}
    for cache in caches:
        facts = (cache.role, cache.kind, cache.precision, _shape_and_layout(cache, layouts))
        groups.setdefault(facts, []).append(cache)
    lines: dict[tuple[str, ...], list[Cache]] = {}
    for (_, *shared), group in groups.items():
        lines.setdefault((layers_in_words(cache.layer for cache in group), *shared), []).extend(group)
    rows = []
    for (layers, *shared), group in lines.items():
        roles = ", ".join(dict.fromkeys(cache.role for cache in group))
        rows.append((layers, roles, *shared, _sizes(group)))
    return columns(rows)


def _shape_and_layout(cache: Cache, layouts: Mapping[str, str]) -> str:
    return " ".join([_shape(cache.value_shape, cache.axes), *([layouts[cache.name]] if cache.name in layouts else [])])


def _unfolded_caches(caches: tuple[Cache, ...], layouts: Mapping[str, str]) -> list[str]:
    lines = []
    for cache in caches:
        kinds = (layers_in_words([cache.layer]), cache.role, cache.kind, cache.precision)
        facts = (*kinds, _shape_and_layout(cache, layouts), _sizes([cache]))
        lines += ["", f"  {on_one_line(cache.name)}", f"    {'  '.join(fact for fact in facts if fact)}"]
        lines.append(f"    {on_one_line(cache.read)} -> {on_one_line(cache.write or 'only read')}")
        lines += [f"    {on_one_line(fact)}" for fact in cache.evidence]
    return [*lines, ""] if lines else []


def _shape(shape: tuple[Dimension, ...] | None, axes: Axes | None = None) -> str:
    if shape is None:
        return "of any rank"
    names = {position: name for name, position in asdict(axes).items()} if axes is not None else {}
    sizes = ["?" if size is None else str(size) for size in shape]
    return f"[{', '.join(f'{names[axis]}={size}' if axis in names else size for axis, size in enumerate(sizes))}]"


def _sizes(caches: Sequence[Cache]) -> str:
    """Return ``256 B per token``, ``32.8 KB fixed``, or both; empty if a size is unknown."""
    growing = known_sum(cache.bytes_per_token for cache in caches if cache.axes.sequence is not None)
    fixed = known_sum(cache.fixed_bytes for cache in caches if cache.axes.sequence is None)
    if growing is None or fixed is None:
        return ""
    grows = {cache.axes.sequence is not None for cache in caches}
    parts = [f"{in_bytes(growing)} per token"] if True in grows else []
    return ", ".join([*parts, f"{in_bytes(fixed)} fixed"] if False in grows else parts)


def _totals(inventory: Inventory) -> list[str]:
    totals = total_bytes(inventory)
    parts = []
    if inventory.of_kind("kv") and totals.bytes_per_token is not None and totals.bytes_per_1k_tokens is not None:
        per_1k = in_bytes(totals.bytes_per_1k_tokens)
        parts.append(f"{in_bytes(totals.bytes_per_token)} per token, {per_1k} per 1k tokens")
    if inventory.of_kind("cross") and totals.bytes_per_encoder_token is not None:
        parts.append(f"{in_bytes(totals.bytes_per_encoder_token)} per token of the encoder")
    if inventory.of_kind("linear") and totals.fixed_bytes is not None:
        parts.append(f"{in_bytes(totals.fixed_bytes)} fixed")
    return [f"  total for a batch of 1: {'; '.join(parts)}"] if parts else []


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
    rows = [(group.layers, group.blocks[0], group.is_cross) for group in group_attention(inventory)]
    return columns(
        [(layers, attention_in_words(block, is_cross=cross), form_in_words(block)) for layers, block, cross in rows]
    )


def _unfolded_attention(model: Model, inventory: Inventory) -> list[str]:
    def known(size: int | None) -> str:
        return "unknown" if size is None else str(size)

    lines = []
    masks = {mask.node.name: mask for mask in inlined(model).analysis(find_masks)}
    angles = {each.node.name: each for each in inlined(model).analysis(find_angles)}
    for group in group_attention(inventory):
        for block in group.blocks:
            caches = ", ".join(dict.fromkeys(name for name in (block.key, block.value) if name is not None))
            lines += [
                "",
                f"  {on_one_line(block.node)}",
                f"    {layers_in_words([block.layer])}  {form_in_words(block)}",
            ]
            lines.append(f"    {attention_in_words(block, is_cross=group.is_cross)}")
            lines.append(f"    head_dim {known(block.head_dim)}, value head_dim {known(block.value_head_dim)}")
            lines.append(f"    reads {on_one_line(caches or 'no cache')}")
            words = [*mask_in_words(masks[block.node]), *positions_in_words(angles[block.node])]
            lines += [f"    {on_one_line(line)}" for line in words]
    for learned in inlined(model).analysis(find_learned_positions):
        lines += ["", f"  {on_one_line(learned.node.name)}", "    adds learned positions to hidden states"]
        lines += [f"    {on_one_line(line)}" for line in positions_in_words(learned)]
    return [*lines, ""] if lines else []
