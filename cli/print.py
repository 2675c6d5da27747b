"""``graphpass print``."""

from __future__ import annotations

from pathlib import Path

import click

from .console import Console, console_command
from .models import PATH


@console_command("print", limited=True)
@click.argument("model", type=PATH)
@click.option("--around", metavar="NODE", help="Print the neighborhood of a node, by its name or a suffix of it.")
@click.option("--distance", type=click.IntRange(0), default=3, show_default=True, help="Edges from NODE.")
@click.option("--layer", type=click.IntRange(0), help="Print one layer, numbered as graphpass inspect does.")
def command(console: Console, model: Path, around: str | None, distance: int, layer: int | None) -> None:
    """Print the graph of a model as text, an operator a line.

    MODEL is an .onnx file, an .xml file, or a folder with one of them. Operators have neutral names and
    attributes, the same for both formats. Constants of up to 8 elements are printed as operands. Comments describe the
    effective mask of each attention block. graphpass.testing.parse_model makes a model from the text.
    """
    from graphpass.api.text import text

    console.result(text(model, around=around, distance=distance, layer=layer, watch=console))
