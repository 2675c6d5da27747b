"""``graphpass split``."""

from __future__ import annotations

import click

from graphpass.ir.types import Dialect
from graphpass.progress import stage

from .console import Console, console_command
from .job import Job, job_options, run_pipeline
from .models import load_model
from .results import files_told, refuse_input, tell


@console_command("split")
@click.option("--prompt", type=int, required=True, help="Tokens of the longest prompt.")
@click.option("--chunk", type=int, help="Tokens that the prefill model takes at a time; the longest prompt by default.")
@click.option("--capacity", type=int, required=True, help="Positions that fit, the prompt included.")
@click.option("--to", "dialect", type=click.Choice(["onnx", "openvino"]), help="Convert an ONNX model to IR.")
@job_options(output="The folder to write to.", verify=True, pipeline=False)
def command(console: Console, job: Job, prompt: int, chunk: int | None, capacity: int, dialect: Dialect | None) -> None:
    """Make a prefill and a decode model of static shapes, over one file of weights.

    MODEL is an .onnx file, an .xml file, or a folder that holds one of them. NPUs and other ahead-of-time compilers
    take this form: the prefill model runs chunk by chunk until the prompt is in, the decode model token by token. No
    dimension of either is left open. graphpass.runtime.open_pair runs the two as one session.
    """
    from graphpass.artifacts.companions import copy_companions
    from graphpass.artifacts.split import Split, stage_split, verify_split
    from graphpass.errors import UsageError
    from graphpass.storage.staging import staging

    split = Split(prompt, prompt if chunk is None else chunk, capacity)
    loaded = load_model(job.model, job.declared)
    wanted = dialect or loaded.dialect
    if wanted == "onnx" and loaded.dialect == "openvino":
        raise UsageError("GP268", "an IR cannot be written as ONNX", "leave out --to onnx")
    suffix = ".onnx" if wanted == "onnx" else ".xml"
    for name in split.phases():
        refuse_input(loaded, job.output / f"{name}{suffix}")
    # The staging folder comes first, so that a write-protected place is known before long work.
    with staging(job.output) as folder:
        passes = split.preparation(loaded, wanted)
        prepared, report = loaded, list[str]()
        if passes:
            result, report = run_pipeline(passes, loaded, console, job)
            prepared = result.model
        models, written = stage_split(prepared, split, folder, job.weights)
        if job.verify:
            with stage("verifying"):
                compared = verify_split(loaded, models, split)
            report += [""] if report else []
            report.append(f"verified  same: {compared} positions compared, after prompts of 1 to {split.prompt} tokens")
        if loaded.path is not None:
            # Without files that only ONNX Runtime GenAI reads: they name one model.
            copy_companions(loaded.path, folder, "openvino")
        files = files_told(folder, [written])
        if suffix == ".xml":
            files.append("prefill.bin and decode.bin are one file: two hard links")
    sizes = f"prompts of {split.prompt} in chunks of {split.chunk}, {split.capacity} positions"
    tell(console, [f"{loaded.path} -> {job.output}: {sizes}", "", *report], job.output, files, [job.output])
