"""``graphpass why``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from graphpass.ir.operators import LAYOUT

from .console import Console, columns, pass_console, talk_options
from .models import load_model
from .paths import PATH

if TYPE_CHECKING:
    from collections.abc import Sequence

    from graphpass.ir.graph import Node
    from graphpass.reports.cache import Reader, Reasoning

#: Operators that only lay out, convert or copy; a way is told without them.
_QUIET = LAYOUT | {"Dropout"}

#: How much of a way is told from each end.
_ENDS = 6


@click.command("why")
@click.argument("model", type=PATH)
@click.argument("cache")
@click.option("--all", "unfolded", is_flag=True, help="Tell the whole way, also what only lays out or converts.")
@talk_options
@pass_console
def command(console: Console, model: Path, cache: str, unfolded: bool) -> None:
    """Tell why a cache is called what it is called.

    MODEL is an .onnx file, an .xml file, or a folder that holds one of them. CACHE is the name of a
    cache, of its past input or present output, or how the name begins. Told are the evidence, the way
    from the past to what is written back, who reads it, and the rules that were tried in order, each
    with the first fact that it missed.
    """
    loaded = load_model(model, console)

    from graphpass.analysis.caches.inventory import analyze_caches
    from graphpass.reports.cache import find_cache, reason_about

    with console.activity("analyzing"):
        inventory = analyze_caches(loaded)
        reasoning = reason_about(loaded, inventory, find_cache(inventory, cache))
    console.result(_as_text(reasoning, unfolded=unfolded))


def _as_text(reasoning: Reasoning, *, unfolded: bool) -> str:
    cache = reasoning.cache
    layer = "no known layer" if cache.layer is None else f"layer {cache.layer}"
    lines = [f"{cache.name}: {cache.kind}, {cache.role}, {layer}", "", "evidence"]
    lines += [f"  {fact}" for fact in cache.evidence]
    lines += ["", "from past to present" if cache.write is not None else "the past; nothing is written back"]
    lines += _path(reasoning.path, unfolded=unfolded)
    lines += ["", "read by", *_readers(reasoning.readers)]
    lines += ["", "rules, in the order in which they were tried"]
    for tried in reasoning.attempts:
        lines += [f"  {'yes' if tried.holds else 'no '}  {tried.rule}", f"       {tried.fact}"]
    if not any(attempt.holds for attempt in reasoning.attempts):
        lines += ["  none holds, so nothing is claimed"]
    return "\n".join(lines)


def _path(nodes: Sequence[Node], *, unfolded: bool) -> list[str]:
    # The ends and who makes what is written back are always told: the rules speak of them.
    ends = {*nodes[:1], *nodes[-2:]}
    told = [node for node in nodes if unfolded or node in ends or node.op not in _QUIET]
    rows = [(node.op, node.name, _result(node)) for node in told]
    lines = columns(rows)
    if not unfolded and len(lines) > 2 * _ENDS + 1:
        lines[_ENDS:-_ENDS] = [f"  ... {len(lines) - 2 * _ENDS} more; --all tells them"]
    return lines


def _result(node: Node) -> str:
    axis = f"axis {node.attributes['axis']}, " if "axis" in node.attributes else ""
    shape = node.outputs[0].shape if node.outputs else None
    if shape is None:
        return axis.rstrip(", ")
    return f"{axis}to [{', '.join('?' if size is None else str(size) for size in shape)}]"


def _readers(readers: Sequence[Reader]) -> list[str]:
    if not readers:
        return ["  no attention that could be recognised"]
    lines = []
    for reader in readers:
        lines.append(f"  {reader.node}, as {reader.role}")
        lines += [f"    through {step}" for step in reader.through]
        lines += [f"    fuse-attention leaves it: {reader.miss}"] if reader.miss is not None else []
    return lines
