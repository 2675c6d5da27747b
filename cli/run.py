"""``graphpass run``."""

from __future__ import annotations

from pathlib import Path

import click

from graphpass.engine.passes import Pass
from graphpass.ir.model import Model
from graphpass.ir.types import Dialect

from .console import Console, console_command
from .job import Job, job_options, prove, run_pipeline
from .models import load_model
from .results import Result, refuse_input

_FILE_NAMES: dict[Dialect, str] = {"onnx": "model.onnx", "openvino": "openvino_model.xml"}


@console_command("run")
@click.option("-p", "--pipeline", "text", required=True, help='Passes: "a,b{x=1}", or @FILE.toml.')
@job_options(output="An .onnx or .xml file, or a folder to write to.", verify=False)
def command(console: Console, job: Job, text: str) -> None:
    """Run a pipeline of passes on a model.

    MODEL is an .onnx file, an .xml file, or a folder that holds one of them. Into a folder, the configuration and
    tokenizer files beside the input are copied, too. The file graphpass.json (beside a single file FILE.graphpass.json)
    records input, options and passes.

    \b
    A pipeline:  to-openvino,fuse-attention,make-stateful{beam-index=true}
    As TOML:     [[pass]]
                 name = "make-stateful"
                 beam-index = true
    """  # noqa: D301 - click keeps the lines of a paragraph after this character
    passes = _passes(text)
    loaded = load_model(job.model, job.declared)
    output = job.output
    is_file = output.suffix.lower() in {".onnx", ".xml"} and not output.is_dir()
    if is_file:
        refuse_input(loaded, output)

    from graphpass.io import check_destination

    made = Result(console, job, {"": loaded}, {"": passes}, is_file=is_file)
    if made.is_there():
        return
    with made.staged() as folder:
        result, report = run_pipeline(passes, loaded, console, job)
        target = output if is_file else output / _FILE_NAMES[result.model.dialect]
        check_destination(result.model, target)
        refuse_input(loaded, target)
        if job.verify:
            from graphpass.verify import compare

            hint = "--verify-each names the pass, "
            verdict = prove(lambda: compare(loaded, result.model, examine=True), hint)
            report += ["", f"verified  {verdict.summary()}"]
        made.write(folder, {target.name: result.model}, {"": result.records}, loaded.path)
    made.tell(report)


def _passes(text: str) -> tuple[Pass[Model], ...]:
    from graphpass.engine.pipeline import load_toml, parse
    from graphpass.errors import UsageError

    passes = load_toml(Path(text[1:])) if text.startswith("@") else parse(text)
    if not passes:
        raise UsageError("GP210", "the pipeline is empty", "graphpass passes lists what could stand in it")
    return passes
