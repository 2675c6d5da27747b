"""``graphpass verify``."""

from __future__ import annotations

from pathlib import Path

import click

from .console import Console, pass_console, talk_options
from .models import load_model
from .paths import PATH


def _ids(context: click.Context, parameter: click.Parameter, text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError as error:
        raise click.BadParameter(f"{text!r} is no list of token ids such as 1,5,9", context, parameter) from error


@click.command("verify")
@click.argument("reference", type=PATH)
@click.argument("candidate", type=PATH)
@click.option(
    "--steps", type=click.IntRange(min=0), default=12, show_default=True, help="Greedy steps after each prefill."
)
@click.option("--prompt-ids", callback=_ids, metavar="1,5,9", help="Token ids of the first prompt.")
@click.option("--atol", type=click.FloatRange(min=0), help="Absolute tolerance; 1e-3 for models in f32, more for f16.")
@click.option("--rtol", type=click.FloatRange(min=0), help="Relative tolerance; the same.")
@click.option(
    "--edits",
    is_flag=True,
    help="Also trim, rewind and reorder the caches, restore snapshots, and feed trees of drafts.",
)
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", help="How to print it.")
@talk_options
@click.pass_context
@pass_console
def command(
    console: Console,
    context: click.Context,
    reference: Path,
    candidate: Path,
    steps: int,
    prompt_ids: tuple[int, ...] | None,
    atol: float | None,
    rtol: float | None,
    edits: bool,
    form: str,
) -> None:
    """Run two models in lockstep and tell where they part.

    Each is an .onnx file, an .xml file, or a folder that holds one of them. Several sequences are run,
    with a reset before each: a prefill, then greedy steps that feed both models the reference's choice. With --edits,
    the caches of both are edited alike on the way, as speculative decoding and beam search do. Exits with 1 where the
    models part.
    """
    models = load_model(reference, console), load_model(candidate, console)

    from graphpass.verify import compare

    with console.activity("comparing"):
        comparison = compare(*models, steps=steps, prompt_ids=prompt_ids, atol=atol, rtol=rtol, edits=edits)
    if form == "json":
        import json

        console.result(json.dumps(comparison.to_json(), indent=2, allow_nan=False))
    else:
        console.result(comparison.summary())
    if not comparison.passed:
        context.exit(1)
