"""The page: summary, a picture of each group of layers, the evidence of each cache."""

from __future__ import annotations

from html import escape
from importlib import resources
from typing import TYPE_CHECKING

from graphpass.ir.operators import CASTS
from graphpass.reports.attention import AttentionGroup, attention_in_words, form_in_words, group_attention
from graphpass.reports.frame import framed
from graphpass.reports.layers import LayerGroup, group_layers, ranges
from graphpass.targets.consumers.summary import total_bytes

if TYPE_CHECKING:
    from pathlib import Path

    from graphpass.ir.cache import Cache, Inventory
    from graphpass.ir.model import Model
    from graphpass.reports.flow import Flow, Stop

__all__ = ["render", "write"]


def render(model: Model, inventory: Inventory, title: str) -> str:
    """A self-contained HTML page about the caches of ``model``.

    Args:
        model: The model that ``inventory`` is of.
        inventory: What `analyze_caches` says of it.
        title: What the page calls the model.

    Returns:
        The page: no other file is needed to show it, and the same model gives the same page.
    """
    groups = group_layers(model, inventory)
    numbers = {cache.name: number for number, cache in enumerate(inventory.caches)}
    script = resources.files(__package__).joinpath("page.js").read_text(encoding="utf-8")
    parts = [
        _summary(model, inventory),
        _legend(inventory),
        *(_group(group, numbers) for group in groups),
        "" if groups else "<p>No tensor is carried from one step to the next.</p>",
        _attention(inventory),
        '<h2>Evidence</h2><p class="hint">Click a cache above, or open one here.</p>',
        *(_evidence_of(group, numbers) for group in groups),
    ]
    return framed(f"{title}: caches", title, parts, script)


def write(model: Model, inventory: Inventory, path: Path, title: str) -> None:
    """Write what `render` makes to ``path``, whole or not at all.

    Raises:
        WriteError: GP501, the file system's words; an older file is untouched.
    """
    from graphpass.storage.staging import staging

    page = render(model, inventory, title)
    with staging(path.parent) as folder:
        # A file's name need not be text.
        (folder / path.name).write_text(page, encoding="utf-8", errors="backslashreplace")


def _summary(model: Model, inventory: Inventory) -> str:
    totals = total_bytes(inventory)
    facts = {
        "format": "OpenVINO IR" if model.dialect == "openvino" else "ONNX",
        "kind": inventory.kind,
        "caches": f"{len(inventory.caches)}, {'inside the model' if inventory.stateful else 'inputs and outputs'}",
        "per token": _size(totals.bytes_per_token) if inventory.of_kind("kv") else "none",
        "fixed": _size(totals.fixed_bytes) if inventory.of_kind("linear") else "none",
    }
    rows = "".join(f"<div><dt>{name}</dt><dd>{escape(value)}</dd></div>" for name, value in facts.items())
    return f"<dl class=facts>{rows}</dl>"


def _size(total: int | None) -> str:
    return "a size is unknown" if total is None else f"{total:,} bytes"


def _legend(inventory: Inventory) -> str:
    kinds = dict.fromkeys(cache.kind for cache in inventory.caches)
    return "<p class=legend>" + " ".join(f'<span class="chip {kind}">{kind}</span>' for kind in kinds) + "</p>"


def _heading(group: LayerGroup) -> str:
    if not group.layers:
        return "Layer unknown"
    return f"Layer{'s' if len(group.layers) > 1 else ''} {ranges(group.layers)}"


def _group(group: LayerGroup, numbers: dict[str, int]) -> str:
    alike = f" <small>{len(group.layers)} alike</small>" if len(group.layers) > 1 else ""
    lanes = "".join(_lane(cache, flow, numbers[cache.name]) for cache, flow in group.lanes)
    return f"<section><h2>{_heading(group)}{alike}</h2>{lanes}</section>"


def _evidence_of(group: LayerGroup, numbers: dict[str, int]) -> str:
    caches = "".join(_evidence(cache, numbers[cache.name]) for cache in group.members)
    return f"<details><summary>{_heading(group)} <small>{len(group.members)} caches</small></summary>{caches}</details>"


def _lane(cache: Cache, flow: Flow, number: int) -> str:
    past, *middle = flow.update
    back = middle.pop() if cache.write is not None else None
    boxes = [_end(past, cache, "past")]
    boxes += [_box(stop) for stop in middle if stop.op not in CASTS]
    if back is not None:
        boxes.append(_end(back, cache, "present"))
    reading = [stop for stop in flow.reading if stop.op not in CASTS]
    way = _arrows(boxes)
    if back is not None:
        way += '<span class=again title="the next step starts with it">&#8635;</span>'
    branch = (
        f"<div class=branch><span class=arrow>&#8627;</span>{_arrows([_box(s) for s in reading])}</div>"
        if reading
        else ""
    )
    label = f'<span class="chip {cache.kind}">{cache.role}</span>'
    return f'<button class="lane {cache.kind}" data-cache="{number}">{label}<div class=way>{way}</div>{branch}</button>'


def _arrows(boxes: list[str]) -> str:
    return "<span class=arrow>&#8594;</span>".join(boxes)


def _end(stop: Stop, cache: Cache, what: str) -> str:
    return f'<span class="box {cache.kind}" title="{escape(stop.name)}">{what}<small>{escape(stop.op)}</small></span>'


def _box(stop: Stop) -> str:
    return f'<span class=box title="{escape(stop.name)}">{escape(stop.op)}</span>'


def _attention(inventory: Inventory) -> str:
    if not inventory.attention:
        return ""
    rows = [
        f"<tr><td>{group.layers}</td><td>{escape(attention_in_words(block, is_cross=group.is_cross))}</td>"
        f"<td>{escape(form_in_words(block))}</td><td>{_nodes(group)}</td></tr>"
        for group in group_attention(inventory)
        for block in group.blocks[:1]
    ]
    head = "<tr><th>layers</th><th>like</th><th>form</th><th>nodes</th></tr>"
    count = len(inventory.attention)
    return f"<details><summary>Attention ({count})</summary><table>{head}{''.join(rows)}</table></details>"


def _nodes(group: AttentionGroup) -> str:
    return "<br>".join(escape(block.node) for block in group.blocks)


def _evidence(cache: Cache, number: int) -> str:
    sizes = {"bytes per token": cache.bytes_per_token, "bytes": cache.fixed_bytes}
    axes = cache.axes
    named = {"batch": axes.batch, "heads": axes.heads, "sequence": axes.sequence, "head_dim": axes.head_dim}
    shape = (
        ", ".join("?" if size is None else str(size) for size in cache.shape) if cache.shape is not None else "unknown"
    )
    facts = {
        "kind": f"{cache.kind}, {cache.role}",
        "layer": "unknown" if cache.layer is None else str(cache.layer),
        "shape": f"[{shape}] {cache.element_type}",
        "axes": ", ".join(f"{name} {axis}" for name, axis in named.items() if axis is not None) or "unknown",
        **{name: f"{size:,}" for name, size in sizes.items() if size is not None},
        "read": cache.read,
        "written": cache.write or "never",
    }
    rows = "".join(f"<div><dt>{name}</dt><dd>{escape(value)}</dd></div>" for name, value in facts.items())
    because = "".join(f"<li>{escape(fact)}</li>" for fact in cache.evidence)
    chip = f'<span class="chip {cache.kind}">{cache.kind}</span>'
    body = f"<dl class=facts>{rows}</dl><ul>{because}</ul>"
    return f'<details id="cache-{number}"><summary>{chip} {escape(cache.name)}</summary>{body}</details>'
