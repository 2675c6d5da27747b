"""``graphpass convert``."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import click

from graphpass.errors import PassFailedError, UsageError
from graphpass.progress import stage

from .console import Console, console_command
from .job import Job, job_options, prove, run_pipeline
from .models import load_model
from .results import Result, refuse_input

if TYPE_CHECKING:
    from pathlib import Path

    from graphpass.artifacts.encoder_decoder import EncoderDecoder
    from graphpass.engine.manager import PassRecord
    from graphpass.engine.passes import Pass
    from graphpass.engine.target import Target
    from graphpass.ir.model import Model
    from graphpass.runtime.backends.encoder_decoder import EncoderDecoderModels
    from graphpass.verify import Comparison


@dataclass(frozen=True, slots=True)
class _Part:
    """Plans the conversion of one model; ``name`` is empty if it is the only one."""

    name: str
    model: Model
    passes: tuple[Pass[Any], ...]
    file: str


@dataclass(frozen=True, slots=True)
class _Plan:
    """Plans the conversion of a model or of an encoder and its decoder.

    Attributes:
        source: A file of the input, beside which configurations and tokenizers lie.
        inputs: All models of the input, by part.
    """

    title: str
    source: Path
    reference: Model | EncoderDecoderModels
    inputs: dict[str, Model]
    parts: tuple[_Part, ...]


@console_command("convert")
@click.option("--target", "target_name", required=True, help="The target, with options: gpu{cache=reorder}.")
@click.option("--allow-unfused", is_flag=True, help="Write the model even if the target's contract does not hold.")
@click.option(
    "--tokenizer/--no-tokenizer",
    default=True,
    show_default=True,
    help="Convert the tokenizer beside the input for openvino.genai; needs graphpass[genai].",
)
@job_options(output="The folder to write to.", verify=True)
def command(console: Console, job: Job, target_name: str, allow_unfused: bool, tokenizer: bool) -> None:
    """Make a model fit for a target, and prove that it computes the same.

    MODEL is an .onnx file, an .xml file, or a folder that holds one of them, or an encoder and its decoders as optimum
    exports them. The result, and the configuration and tokenizer files beside the input, go into the output folder: all
    of them or, if anything fails, none. The file graphpass.json records input, options and passes. A result that the
    target's runtime would not fuse is not written; `graphpass check` prints the reasons. `graphpass targets` lists
    targets and their options.
    """
    from graphpass.artifacts.companions import missing_packages
    from graphpass.artifacts.encoder_decoder import find_encoder_decoder, folder_of_part
    from graphpass.engine.pipeline import format_target, parse_target

    target = parse_target(target_name)
    options: dict[str, Any] = {"target": format_target(target), "allow_unfused": allow_unfused}
    options["tokenizer"] = tokenizer and not missing_packages()
    if (files := find_encoder_decoder(job.model)) is not None:
        plan = _plan_folder(job, files, target)
    else:
        if (folder := folder_of_part(job.model)) is not None:
            console.note(f"{job.model} is one part of the model in {folder}; name the folder to convert all of it")
        plan = _plan_model(job, target)
    made = Result(console, job, plan.inputs, {part.name: part.passes for part in plan.parts}, options)
    if not made.is_there():
        _convert(console, job, target, plan, made, allow_unfused=allow_unfused, tokenizer=tokenizer)


def _plan_model(job: Job, target: Target) -> _Plan:
    from graphpass.engine.pipeline import format_target

    loaded = load_model(job.model, job.declared)
    assert loaded.path is not None
    written_to = job.output / target.output_file
    refuse_input(loaded, written_to)
    part = _Part("", loaded, target.pipeline(loaded), target.output_file)
    return _Plan(
        f"{loaded.path} -> {written_to} for {format_target(target)}", loaded.path, loaded, {"": loaded}, (part,)
    )


def _plan_folder(job: Job, files: EncoderDecoder, target: Target) -> _Plan:
    """Read and plan the parts of a folder."""
    from graphpass.artifacts.encoder_decoder import DECODER_FILE, ENCODER_FILE
    from graphpass.runtime.backends.encoder_decoder import EncoderDecoderModels

    if target.gives_up_fusion:
        raise UsageError("GP226", "cache=reorder is not for models of an encoder and a decoder", "leave it out")
    encoder, decoder = load_model(files.encoder), load_model(files.decoder, job.declared)
    inputs = {"encoder": encoder, "decoder": decoder}
    if files.first is not None and not files.merged:
        inputs["first decoder"] = load_model(files.first)
    for model in inputs.values():
        for name in (ENCODER_FILE, DECODER_FILE):
            refuse_input(model, job.output / name)
    first = decoder if files.merged else inputs.get("first decoder")
    parts = (
        _Part("encoder", encoder, target.encoder_pipeline(encoder), ENCODER_FILE),
        _Part("decoder", decoder, target.decoder_pipeline(decoder, files.first), DECODER_FILE),
    )
    title = f"{files.encoder.parent} -> {job.output} for {target.name}"
    return _Plan(title, files.decoder, EncoderDecoderModels(encoder, decoder, first), inputs, parts)


def _convert(
    console: Console, job: Job, target: Target, plan: _Plan, made: Result, *, allow_unfused: bool, tokenizer: bool
) -> None:
    """Run the pipelines, prove the result, and write it with its companions."""
    from graphpass.engine.conditions import OPENVINO
    from graphpass.io import check_destination
    from graphpass.reports.contract import hold_to_contract

    report = [plan.title]
    models: dict[str, Model] = {}
    records: dict[str, tuple[PassRecord, ...]] = {}
    with made.staged() as folder:
        for part in plan.parts:
            dumps = job.dump_dir / part.name if job.dump_dir is not None else None
            result, lines = run_pipeline(part.passes, part.model, console, replace(job, dump_dir=dumps))
            models[part.file], records[part.name] = result.model, result.records
            report += ["", *_before_and_after(part, result.model), "", *lines]
        *others, main = models.values()
        for other in others:
            if missing := OPENVINO.missing(other):
                raise PassFailedError("GP405", f"target {target.name} needs {OPENVINO.name!r}, but {missing}")
        with stage("checking"):
            allowed = allow_unfused or target.gives_up_fusion
            contract = hold_to_contract(main, target, confirm=job.verify, allowed=allowed)
        for name, model in models.items():
            check_destination(model, job.output / name)
        verdict = "not verified (--no-verify)"
        if job.verify:
            hint = "" if others else "--verify-each names the pass, "
            verdict = prove(lambda: _compare(plan.reference, tuple(models.values())), hint).summary()
        report += ["", *contract] if contract else []
        notes = _add_tokenizer(plan.source, folder) if tokenizer and main.dialect == "openvino" else []
        made.write(folder, models, records, plan.source)
    made.tell([*report, "", f"verified  {verdict}"], notes)


def _before_and_after(part: _Part, after: Model) -> list[str]:
    from graphpass.analysis.caches.inventory import analyze_caches
    from graphpass.reports.inventory import in_short, runs_with

    name, indent = (f"{part.name}   ", " " * (len(part.name) + 3)) if part.name else ("", "")
    width = 8 if part.name else 10
    return [
        f"{name}{'before':<{width}}{in_short(part.model, analyze_caches(part.model))}",
        f"{indent}{'after':<{width}}{in_short(after, analyze_caches(after))}",
        *runs_with(after),
    ]


def _compare(reference: Model | EncoderDecoderModels, results: tuple[Model, ...]) -> Comparison:
    from graphpass.ir.model import Model
    from graphpass.runtime.backends.encoder_decoder import EncoderDecoderModels
    from graphpass.verify import compare
    from graphpass.verify.encoder_decoder import compare_encoder_decoders

    if isinstance(reference, Model):
        return compare(reference, results[0], examine=True)
    encoder, decoder = results
    return compare_encoder_decoders(reference, EncoderDecoderModels(encoder, decoder, None))


def _add_tokenizer(model_file: Path, folder: Path) -> list[str]:
    """Convert the tokenizer beside a file of the input, and return a line."""
    from graphpass.artifacts.companions import has_tokenizer, missing_packages, stage_tokenizer

    if not has_tokenizer(model_file.parent):
        return []
    if missing := missing_packages():
        return [f"tokenizer not converted: no {' and no '.join(missing)} here; pip install 'graphpass[genai]'"]
    with stage("converting the tokenizer"):
        return [f"tokenizer converted by {stage_tokenizer(model_file.parent, folder)}"]
