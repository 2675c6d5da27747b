"""HTML pages: frame and elements, and the page about a model's caches and operators."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from html import escape
from importlib import resources
from typing import Any

from graphpass.ir.cache import Cache, Inventory
from graphpass.ir.model import Model
from graphpass.ir.operators import CASTS
from graphpass.ir.types import FORMATS, shape_text
from graphpass.reports.attention import attention_in_words, form_in_words, group_attention
from graphpass.reports.layers import Flow, LayerGroup, Stop, group_layers
from graphpass.reports.text import axes_in_words, ranges
from graphpass.reports.totals import total_bytes

#: Policy of pages, which load no files; images are blobs that the page creates.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src blob:"


def framed(title: str, heading: str, parts: Iterable[str]) -> str:
    """Return a self-contained HTML page.

    Args:
        title: Title of the page, as plain text.
        heading: Heading of the page, as plain text.
        parts: The contents, as HTML; empty parts are omitted.
    """
    files = resources.files(__package__)
    style, graph, picture, script = (
        files.joinpath(name).read_text("utf-8")
        for name in ("page.css", "picture/graph.js", "picture/picture.js", "page.js")
    )
    page = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
        f"<title>{escape(title)}</title><style>{style}</style></head><body>",
        f"<h1>{escape(heading)}</h1><button class=theme>light or dark</button>",
        *parts,
        f"<script>{graph}{picture}{script}</script></body></html>",
    ]
    return "\n".join(part for part in page if part) + "\n"


def data_element(data: object) -> str:
    """Return a script element with data as JSON, which cannot end the element."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return f'<script type="application/json">{text}</script>'


def picture_element(picture: Mapping[str, Any]) -> str:
    """Return an element with a picture from `graphpass.reports.picture`."""
    return f'<section class="picture">{data_element(picture)}</section>'


def render(model: Model, inventory: Inventory, title: str) -> str:
    """Return a self-contained HTML page about the caches and operators of ``model``.

    Args:
        model: The model.
        inventory: Inventory of the model.
        title: Name of the model on the page.
    """
    from graphpass.reports.picture import picture_of

    groups = group_layers(model, inventory)
    numbers = {cache.name: number for number, cache in enumerate(inventory.caches)}
    parts = [
        _summary(model, inventory),
        _legend(inventory),
        *(_group(group, numbers) for group in groups),
        "" if groups else "<p>The model has no caches.</p>",
        _attention(inventory),
        '<h2>Evidence</h2><p class="hint">Click a cache above, or open one here.</p>',
        *(_evidence_of(group, numbers) for group in groups),
        "<h2>Operators</h2>",
        picture_element(picture_of([title], model)),
    ]
    return framed(f"{title}: caches", title, parts)


def _summary(model: Model, inventory: Inventory) -> str:
    totals = total_bytes(inventory)
    facts = {
        "format": FORMATS[model.dialect],
        "kind": inventory.kind,
        "caches": f"{len(inventory.caches)}, {'inside the model' if inventory.stateful else 'inputs and outputs'}",
        "per token": _size(totals.bytes_per_token) if inventory.of_kind("kv") else "none",
        "fixed": _size(totals.fixed_bytes) if inventory.of_kind("linear") else "none",
    }
    return facts_element(facts)


def facts_element(facts: Mapping[str, str]) -> str:
    """Return a list element with a name and a value for each fact."""
    rows = "".join(f"<div><dt>{name}</dt><dd>{escape(value)}</dd></div>" for name, value in facts.items())
    return f"<dl class=facts>{rows}</dl>"


def _size(total: int | None) -> str:
    return "unknown" if total is None else f"{total:,} bytes"


def _legend(inventory: Inventory) -> str:
    kinds = dict.fromkeys(cache.kind for cache in inventory.caches)
    return "<p class=legend>" + " ".join(f'<span class="chip {kind}">{kind}</span>' for kind in kinds) + "</p>"


def _heading(group: LayerGroup) -> str:
    if not group.layers:
        return "Layer unknown"
    return f"Layer{'s' if len(group.layers) > 1 else ''} {ranges(group.layers)}"


def _group(group: LayerGroup, numbers: dict[str, int]) -> str:
    count = f" <small>{len(group.layers)} equal layers</small>" if len(group.layers) > 1 else ""
    lanes = "".join(_lane(cache, flow, numbers[cache.name]) for cache, flow in group.lanes)
    return f"<section><h2>{_heading(group)}{count}</h2>{lanes}</section>"


def _evidence_of(group: LayerGroup, numbers: dict[str, int]) -> str:
    caches = "".join(_evidence(cache, numbers[cache.name]) for cache in group.members)
    return f"<details><summary>{_heading(group)} <small>{len(group.members)} caches</small></summary>{caches}</details>"


def _lane(cache: Cache, flow: Flow, number: int) -> str:
    past, *middle = flow.update
    back = middle.pop() if cache.write is not None else None
    boxes = [_end(past, cache, "past"), *_boxes(middle)]
    if back is not None:
        boxes.append(_end(back, cache, "present"))
    way = _arrows(boxes)
    if back is not None:
        way += '<span class=again title="the past of the next step">&#8635;</span>'
    reading = _arrows(_boxes(flow.reading))
    branch = f"<div class=branch><span class=arrow>&#8627;</span>{reading}</div>" if reading else ""
    label = f'<span class="chip {cache.kind}">{cache.role}</span>'
    return f'<button class="lane {cache.kind}" data-cache="{number}">{label}<div class=way>{way}</div>{branch}</button>'


def _arrows(boxes: list[str]) -> str:
    return "<span class=arrow>&#8594;</span>".join(boxes)


def _end(stop: Stop, cache: Cache, label: str) -> str:
    return f'<span class="box {cache.kind}" title="{escape(stop.name)}">{label}<small>{escape(stop.op)}</small></span>'


def _boxes(stops: Iterable[Stop]) -> list[str]:
    shown = (stop for stop in stops if stop.op not in CASTS)
    return [f'<span class=box title="{escape(stop.name)}">{escape(stop.op)}</span>' for stop in shown]


def _attention(inventory: Inventory) -> str:
    if not inventory.attention:
        return ""
    rows = [
        f"<tr><td>{group.layers}</td><td>{escape(attention_in_words(block, is_cross=group.is_cross))}</td>"
        f"<td>{escape(form_in_words(block))}</td>"
        f"<td>{'<br>'.join(escape(block.node) for block in group.blocks)}</td></tr>"
        for group in group_attention(inventory)
        for block in group.blocks[:1]
    ]
    head = "<tr><th>layers</th><th>attention</th><th>form</th><th>nodes</th></tr>"
    count = len(inventory.attention)
    return f"<details><summary>Attention ({count})</summary><table>{head}{''.join(rows)}</table></details>"


def _evidence(cache: Cache, number: int) -> str:
    sizes = {"bytes per token": cache.bytes_per_token, "bytes": cache.fixed_bytes}
    facts = {
        "kind": f"{cache.kind}, {cache.role}",
        "layer": "unknown" if cache.layer is None else str(cache.layer),
        "shape": f"{shape_text(cache.value_shape)} {cache.precision}",
        "axes": axes_in_words(cache.axes),
        **{name: f"{size:,}" for name, size in sizes.items() if size is not None},
        "read": cache.read,
        "written": cache.write or "never",
    }
    evidence = "".join(f"<li>{escape(fact)}</li>" for fact in cache.evidence)
    chip = f'<span class="chip {cache.kind}">{cache.kind}</span>'
    body = f"{facts_element(facts)}<ul>{evidence}</ul>"
    return f'<details id="cache-{number}"><summary>{chip} {escape(cache.name)}</summary>{body}</details>'
