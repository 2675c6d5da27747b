"""``graphpass convert`` of a folder that holds an encoder and its decoder."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from graphpass.errors import UsageError

from .models import load_model
from .pipelines import prove_by, run_pipeline
from .results import Result, refuse_input
from .tokenizers import add_tokenizer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from graphpass.artifacts.encoder_decoder import EncoderDecoder
    from graphpass.engine.manager import PipelineResult
    from graphpass.engine.target import Target
    from graphpass.ir.model import Model

    from .console import Console
    from .job import Job

__all__ = ["convert_folder"]


def convert_folder(
    console: Console,
    job: Job,
    files: EncoderDecoder,
    target: Target,
    options: Mapping[str, Any],
    *,
    allow_unfused: bool,
    tokenizer: bool,
) -> None:
    """Convert both parts, compare them with the input, and write them and what lies beside the input.

    Raises:
        UsageError: GP226 the target, or an option of it, is not for such models; GP203 a file of the input
            would be overwritten.
        VerificationError: GP601, the result does not compute the same as the input.
        GraphpassError: As passes, checks and writing raise.
    """
    from graphpass.artifacts.encoder_decoder import DECODER_FILE, ENCODER_FILE
    from graphpass.engine.conditions import OPENVINO
    from graphpass.errors import PassFailedError
    from graphpass.runtime.sessions.encoder_decoder import EncoderDecoderModels
    from graphpass.verify.encoder_decoder import compare_encoder_decoders

    from .contract import hold_to_contract

    if target.gives_up_fusion:
        raise UsageError("GP226", "cache=reorder is not for models of an encoder and a decoder", "leave it out")
    encoder = load_model(files.encoder, console)
    decoder = load_model(files.decoder, console, job.declared)
    first = decoder if files.merged else None if files.first is None else load_model(files.first, console)
    for name in (ENCODER_FILE, DECODER_FILE):
        for part in (encoder, decoder, first):
            if part is not None:
                refuse_input(part, job.output / name)
    plans = (
        ("encoder", encoder, target.encoder_pipeline(encoder)),
        ("decoder", decoder, target.decoder_pipeline(decoder, files.first)),
    )
    inputs = {"encoder": encoder, "decoder": decoder}
    if first is not None and not files.merged:
        inputs["first decoder"] = first
    pipelines = {name: passes for name, _, passes in plans}
    made = Result(console, job, inputs, pipelines, options)
    if made.is_there():
        return
    report = [f"{files.encoder.parent} -> {job.output} for {target.name}"]
    results: dict[str, PipelineResult] = {}
    with made.staged() as folder:
        for name, part, passes in plans:
            observation = job.observation
            if observation.dump_dir is not None:
                observation = replace(observation, dump_dir=observation.dump_dir / name)
            result, told = run_pipeline(passes, part, console, observation)
            report += ["", *_part(name, part, result.model), *told]
            results[name] = result
        models = {ENCODER_FILE: results["encoder"].model, DECODER_FILE: results["decoder"].model}
        if missing := OPENVINO.missing(models[ENCODER_FILE]):
            raise PassFailedError("GP405", f"target {target.name} needs {OPENVINO.name!r}, but {missing}")
        with console.activity("checking"):
            contract = hold_to_contract(models[DECODER_FILE], target, confirm=job.verify, allowed=allow_unfused)
        report += ["", *contract] if contract else []
        verdict = "not verified (--no-verify)"
        if job.verify:
            reference = EncoderDecoderModels(encoder, decoder, first)
            candidate = EncoderDecoderModels(models[ENCODER_FILE], models[DECODER_FILE], None)
            hint = "nothing was written; --no-verify writes it all the same"
            verdict = prove_by(lambda: compare_encoder_decoders(reference, candidate), console, hint).summary()
        about_tokenizer = add_tokenizer(files.decoder, folder, console) if tokenizer else []
        records = {name: result.records for name, result in results.items()}
        made.write(folder, models, records, files.decoder)
    made.tell([*report, "", f"verified  {verdict}"], about_tokenizer)


def _part(name: str, before: Model, after: Model) -> list[str]:
    from graphpass.analysis.caches.inventory import analyze_caches

    from .inventory import in_short, runs_with

    return [
        f"{name}   before  {in_short(before, analyze_caches(before))}",
        f"{' ' * len(name)}   after   {in_short(after, analyze_caches(after))}",
        *runs_with(after),
    ]
