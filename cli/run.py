"""``graphpass run``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from .console import Console, pass_console, talk_options
from .models import cache_option, load_model
from .pipelines import Observation, instrument_options, prove, run_pipeline
from .results import FILE_NAMES, if_changed_option, is_current, refuse_input, stage_result, weights_option

if TYPE_CHECKING:
    from graphpass.manager import Pass
    from graphpass.model import Model
    from graphpass.storage.write import Weights


@click.command("run")
@click.argument("model", type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    required=True,
    help="An .onnx or .xml file, or a folder to write to.",
)
@click.option("-p", "--pipeline", "text", required=True, help='Passes: "a,b{x=1}", or @FILE.toml.')
@click.option("--verify/--no-verify", default=False, show_default=True, help="Compare the result with the input first.")
@cache_option
@weights_option
@if_changed_option
@instrument_options
@talk_options
@pass_console
def command(
    console: Console,
    model: Path,
    output: Path,
    text: str,
    verify: bool,
    declared: tuple[str, ...],
    weights: Weights,
    if_changed: bool,
    print_changed: bool,
    verify_each: bool,
    dump_dir: Path | None,
) -> None:
    r"""Run a pipeline of passes on a model.

    MODEL is an .onnx file, an .xml file, or a folder that holds one of them. Into a folder,
    the configuration and tokenizer files beside the input are copied, too. The file graphpass.json
    (beside a single file FILE.graphpass.json) tells what the result was made from and how.

    \b
    A pipeline:  to-openvino,fuse-attention,make-stateful{beam-index=true}
    As TOML:     [[pass]]
                 name = "make-stateful"
                 beam-index = true
    """
    passes = _passes(text)
    loaded = load_model(model, console, declared)
    is_file = output.suffix.lower() in {".onnx", ".xml"} and not output.is_dir()
    if is_file:
        refuse_input(loaded, output)

    from graphpass.storage.manifest import describe, manifest_of
    from graphpass.storage.staging import staging
    from graphpass.storage.write import check_destination

    options = {"verify": verify, "verify_each": verify_each, "weights": weights, "cache": list(declared)}
    with console.activity("reading what the input holds"):
        described = describe(loaded, passes, options, weights=if_changed)
    if if_changed and is_current(manifest_of(output, is_file=is_file), described, console):
        return
    with staging(output.parent if is_file else output) as folder:
        result, report = run_pipeline(passes, loaded, console, Observation(print_changed, verify_each, dump_dir))
        target = output if is_file else output / FILE_NAMES[result.model.dialect]
        check_destination(result.model, target)
        refuse_input(loaded, target)
        if verify:
            report += ["", f"verified  {prove(loaded, result.model, console).summary()}"]
        with console.activity("writing"):
            files = stage_result(result, loaded.path, folder, target.name, weights, described, companions=not is_file)
    if console.quiet:
        console.result(str(target))
    else:
        console.result("\n".join([*report, "", f"written to {target.parent}", *(f"  {file}" for file in files)]))


def _passes(text: str) -> tuple[Pass[Model], ...]:
    from graphpass.errors import UsageError
    from graphpass.pipeline import load_toml, parse

    passes = load_toml(Path(text[1:])) if text.startswith("@") else parse(text)
    if not passes:
        raise UsageError("GP210", "the pipeline is empty", "graphpass passes lists what could stand in it")
    return passes
