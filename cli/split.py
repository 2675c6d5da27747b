"""``graphpass split``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from .console import Console, pass_console, talk_options
from .models import cache_option, load_model
from .pipelines import Observation, run_pipeline
from .results import refuse_input, weights_option
from .sizes import in_bytes

if TYPE_CHECKING:
    from graphpass.model import Dialect
    from graphpass.storage.write import Weights


@click.command("split")
@click.argument("model", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path), required=True, help="The folder to write to.")
@click.option("--prompt", type=int, required=True, help="Tokens of the longest prompt.")
@click.option("--chunk", type=int, help="Tokens that the prefill model takes at a time; the longest prompt by default.")
@click.option("--capacity", type=int, required=True, help="Positions that there is room for, the prompt included.")
@click.option("--to", "dialect", type=click.Choice(["onnx", "openvino"]), help="Convert an ONNX model to IR.")
@click.option("--verify/--no-verify", default=True, show_default=True, help="Compare the result with the input first.")
@cache_option
@weights_option
@talk_options
@pass_console
def command(
    console: Console,
    model: Path,
    output: Path,
    prompt: int,
    chunk: int | None,
    capacity: int,
    dialect: Dialect | None,
    verify: bool,
    declared: tuple[str, ...],
    weights: Weights,
) -> None:
    """Make a prefill and a decode model of static shapes, over one file of weights.

    MODEL is an .onnx file, an .xml file, or a folder that holds one of them. That is the form which NPUs and other
    ahead-of-time compilers take: the prefill model runs chunk by chunk until the prompt is in, the decode model token
    by token. No dimension of either is left open. graphpass.runtime.open_pair runs the two as one session.
    """
    from graphpass.errors import UsageError
    from graphpass.split import Split, stage_split, verify_split
    from graphpass.storage.companions import copy_companions
    from graphpass.storage.staging import staging

    split = Split(prompt, prompt if chunk is None else chunk, capacity)
    loaded = load_model(model, console, declared)
    wanted = dialect or loaded.dialect
    if wanted == "onnx" and loaded.dialect == "openvino":
        raise UsageError("GP268", "an IR cannot be written as ONNX", "leave out --to onnx")
    suffix = ".onnx" if wanted == "onnx" else ".xml"
    for name in split.phases():
        refuse_input(loaded, output / f"{name}{suffix}")
    # The staging folder comes first, so that a place which cannot be written to is known before long work.
    with staging(output) as folder:
        passes = split.preparation(loaded, wanted)
        prepared, report = loaded, list[str]()
        if passes:
            result, report = run_pipeline(passes, loaded, console, Observation(False, False, None))
            prepared = result.model
        with console.activity("writing"):
            models = stage_split(prepared, split, folder, weights)
        if verify:
            with console.activity("verifying"):
                compared = verify_split(loaded, models, split)
            report += [""] if report else []
            report.append(f"verified  same: {compared} positions compared, after prompts of 1 to {split.prompt} tokens")
        if loaded.path is not None:
            # Without what only ONNX Runtime GenAI reads: it names one model.
            copy_companions(loaded.path, folder, "openvino")
        files = [file for file in sorted(folder.rglob("*")) if file.is_file()]
        told = [f"  {file.relative_to(folder)} ({in_bytes(file.stat().st_size)})" for file in files]
        if suffix == ".xml":
            told.append("  prefill.bin and decode.bin are one file: two hard links")
    if console.quiet:
        console.result(str(output))
    else:
        sizes = f"prompts of {split.prompt} in chunks of {split.chunk}, {split.capacity} positions"
        head = f"{loaded.path} -> {output}: {sizes}"
        console.result("\n".join([head, "", *report, "", f"written to {output}", *told]))
