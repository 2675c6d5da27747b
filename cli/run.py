"""``graphpass run``."""

from __future__ import annotations

from pathlib import Path

import click

from graphpass.engine.passes import Pass
from graphpass.ir.model import Model
from graphpass.jobs.job import Job

from .completion import complete_passes
from .console import Console, console_command, format_option
from .job import job_options


@console_command("run", limited=True)
@click.option(
    "-p", "--pipeline", "text", required=True, shell_complete=complete_passes, help='Passes: "a,b{x=1}", or @FILE.toml.'
)
@click.option("--stop-after", metavar="PASS", help="Write the model after the first pass of this name.")
@format_option("text", "json")
@job_options(output="An .onnx or .xml file, or a folder to write to.", verify=False)
def command(console: Console, job: Job, text: str, stop_after: str | None, form: str) -> None:
    """Run a pipeline of passes on a model.

    MODEL is an .onnx file, an .xml file, or a folder with one of them. If OUTPUT is a folder, the configuration
    and tokenizer files beside the input are copied, too. The file graphpass.json, or FILE.graphpass.json beside a
    single file, records input, options and passes.

    \b
    A pipeline:  to-openvino,fuse-attention,make-stateful{beam-index=true}
    As TOML:     [[pass]]
                 name = "make-stateful"
                 beam-index = true
    """  # noqa: D301 - click keeps the lines of a paragraph after this character
    from graphpass.jobs.run import run

    outcome = run(job, read_passes(text, stop_after), console)

    from .results import print_outcome

    print_outcome(console, outcome, form)


def read_passes(text: str, stop_after: str | None = None) -> tuple[Pass[Model], ...]:
    """Return the passes of ``--pipeline``.

    Args:
        text: A pipeline, or ``@`` and the path of a TOML file.
        stop_after: Name of a pass; passes after the first of this name are omitted. ``None`` for all passes.

    Raises:
        ReadError: As `graphpass.engine.pipeline.load_toml`.
        UsageError: As `graphpass.engine.pipeline.parse` and `load_toml`; GP210, the pipeline is empty.
    """
    from graphpass.engine.pipeline import load_toml, parse, stopped_after
    from graphpass.errors import UsageError

    passes = load_toml(Path(text[1:])) if text.startswith("@") else parse(text)
    if not passes:
        raise UsageError("GP210", "the pipeline is empty", "graphpass passes lists the passes")
    return passes if stop_after is None else stopped_after(passes, stop_after)
