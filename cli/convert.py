"""``graphpass convert``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from graphpass.jobs.job import Job, Requirement

from .completion import complete_targets
from .console import Console, console_command, format_option
from .job import job_options
from .models import PATH
from .proof import proof_options


@console_command("convert", limited=True)
@click.option(
    "--target",
    "target_name",
    required=True,
    shell_complete=complete_targets,
    help="The target, with options: gpu{cache=reorder}.",
)
@click.option("--allow-unfused", is_flag=True, help="Write the model even if the target's contract does not hold.")
@click.option(
    "--tokenizer/--no-tokenizer",
    default=True,
    show_default=True,
    help="Convert the tokenizer beside the input for openvino.genai; needs graphpass[genai].",
)
@click.option("--html", "page", type=PATH, help="Also write an HTML page of the model before and after.")
@proof_options
@format_option("text", "json")
@job_options(output="The folder to write to.", verify=True)
def command(
    console: Console,
    job: Job,
    target_name: str,
    allow_unfused: bool,
    tokenizer: bool,
    page: Path | None,
    budget: str | None,
    require: Requirement,
    allow: tuple[str, ...],
    all_layers: bool,
    form: str,
) -> None:
    """Convert a model for a target, and verify that the result computes the same.

    MODEL is an .onnx file, an .xml file, or a folder with one of them, with an encoder and its decoders as exported by
    optimum, or with a language model and its embedding models of text and images. The output folder receives the
    result, the configuration and tokenizer files beside the input, and graphpass.json, which records input, options and
    passes. If the conversion fails, no file is written. A result that breaks the target's contract, for example because
    the runtime does not fuse its attention, is not written; `graphpass check` prints the reasons. `graphpass targets`
    lists targets and their options.
    """
    from graphpass.api.convert import convert_job
    from graphpass.engine.pipeline import parse_target

    from .results import print_outcome

    target = parse_target(target_name)
    job = replace(job, proof=replace(job.proof, budget=budget, require=require, allow=allow, all_layers=all_layers))
    outcome = convert_job(job, target, console, allow_unfused=allow_unfused, tokenizer=tokenizer, page=page)
    print_outcome(console, outcome, form)
