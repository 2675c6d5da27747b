"""``graphpass why``."""

from __future__ import annotations

from pathlib import Path

import click

from graphpass.progress import stage, stages

from .console import Console, console_command, format_option
from .models import PATH, load_model


@console_command("why", limited=True)
@click.argument("model", type=PATH)
@click.argument("cache")
@click.option("--all", "unfolded", is_flag=True, help="Print the whole path, with layout operators and Converts.")
@format_option("text", "json")
def command(console: Console, model: Path, cache: str, unfolded: bool, form: str) -> None:
    """Explain the kind and role of a cache, and the attention that reads it.

    MODEL is an .onnx file, an .xml file, or a folder with one of them. CACHE is the name of a cache, of its past
    input or of its present output, a unique prefix of one of these, or the number of a layer, for its first cache.
    Prints the evidence, the path from past to present, the attention that reads the cache with its effective mask and
    positions for row b, head h, query q and key k, and the rules in the order in which they were tried, each with its
    first miss.
    """
    from graphpass.analysis.caches.inventory import analyze_caches
    from graphpass.reports.cache import find_cache, reason_about

    with stages("explaining", 3):  # reading, analyzing, tracing
        loaded = load_model(model)
        with stage("analyzing"):
            inventory = analyze_caches(loaded)
        with stage("tracing the cache"):
            reasoning = reason_about(loaded, inventory, find_cache(inventory, cache))
    console.report(form, lambda: reasoning.text(unfolded=unfolded), reasoning.to_json)
