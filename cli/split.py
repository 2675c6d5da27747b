"""``graphpass split``."""

from __future__ import annotations

import click

from graphpass.ir.types import Dialect
from graphpass.jobs.job import Job

from .console import Console, console_command, format_option
from .job import job_options


@console_command("split", limited=True)
@click.option("--prompt", type=int, required=True, help="Length of the longest prompt, in tokens.")
@click.option(
    "--chunk",
    type=int,
    help="Tokens that the prefill model processes in a step; by default the length of the longest prompt.",
)
@click.option("--capacity", type=int, required=True, help="Positions of each cache, prompt included.")
@click.option(
    "--to",
    "dialect",
    type=click.Choice(["onnx", "openvino"]),
    help="Format of the result, by default that of MODEL; openvino converts ONNX.",
)
@format_option("text", "json")
@job_options(output="The folder to write to.", verify=True, pipeline=False)
def command(
    console: Console, job: Job, prompt: int, chunk: int | None, capacity: int, dialect: Dialect | None, form: str
) -> None:
    """Split a model into prefill and decode models of static shapes, with shared weights.

    MODEL is an .onnx file, an .xml file, or a folder with one of them. NPUs and other ahead-of-time compilers
    accept this form: the prefill model processes the prompt in chunks, the decode model one token a step. All
    dimensions of both are static. graphpass.runtime.open_pair runs both as one session.
    """
    from graphpass.api.split import split

    outcome = split(
        job.model,
        job.output,
        prompt=prompt,
        capacity=capacity,
        chunk=chunk,
        to=dialect,
        verify=job.verify,
        caches=job.declared,
        weights=job.weights,
        watch=console,
    )
    if console.quiet and form == "text":
        console.result(str(outcome.output))
    else:
        console.report(form, lambda: outcome.text(verbose=console.verbose), outcome.to_json)
