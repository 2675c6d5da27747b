"""``graphpass convert`` of a folder that holds an encoder and its decoder."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from graphpass.errors import UsageError

from .models import load_model
from .pipelines import prove_by, run_pipeline
from .results import files_told, is_current, refuse_input
from .tokenizers import add_tokenizer

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from graphpass.encoder_decoder import EncoderDecoder
    from graphpass.manager import PipelineResult
    from graphpass.model import Model
    from graphpass.storage.write import Weights
    from graphpass.targets import Target

    from .console import Console
    from .pipelines import Observation

__all__ = ["Options", "convert_folder"]


@dataclass(frozen=True)
class Options:
    """What ``convert`` was told.

    Attributes:
        recorded: What of it the manifest tells.
    """

    output: Path
    if_changed: bool
    verify: bool
    declared: tuple[str, ...]
    allow_unfused: bool
    weights: Weights
    tokenizer: bool
    observation: Observation
    recorded: Mapping[str, Any]


def convert_folder(console: Console, files: EncoderDecoder, target: Target, options: Options) -> None:
    """Convert both parts, compare them with the input, and write them and what lies beside the input.

    Raises:
        UsageError: GP226 the target, or an option of it, is not for such models; GP203 a file of the input
            would be overwritten.
        VerificationError: GP601, the result does not compute the same as the input.
        GraphpassError: As passes, checks and writing raise.
    """
    from graphpass.conditions import OPENVINO
    from graphpass.encoder_decoder import DECODER_FILE, ENCODER_FILE
    from graphpass.errors import PassFailedError
    from graphpass.runtime.encoder_decoder import EncoderDecoderModels
    from graphpass.storage.companions import copy_companions
    from graphpass.storage.manifest import describe_parts, manifest_of, write_manifest
    from graphpass.storage.staging import staging
    from graphpass.storage.write import stage_model
    from graphpass.verify.encoder_decoder import compare_encoder_decoders

    from .contract import hold_to_contract

    if target.gives_up_fusion:
        raise UsageError("GP226", "cache=reorder is not for models of an encoder and a decoder", "leave it out")
    encoder = load_model(files.encoder, console)
    decoder = load_model(files.decoder, console, options.declared)
    first = decoder if files.merged else None if files.first is None else load_model(files.first, console)
    for name in (ENCODER_FILE, DECODER_FILE):
        for part in (encoder, decoder, first):
            if part is not None:
                refuse_input(part, options.output / name)
    plans = (
        ("encoder", encoder, target.encoder_pipeline(encoder)),
        ("decoder", decoder, target.decoder_pipeline(decoder, files.first)),
    )
    inputs = {"encoder": encoder, "decoder": decoder}
    if first is not None and not files.merged:
        inputs["first decoder"] = first
    pipelines = {name: passes for name, _, passes in plans}
    with console.activity("reading what the input holds"):
        described = describe_parts(inputs, pipelines, options.recorded, weights=options.if_changed)
    manifest = manifest_of(options.output, is_file=False)
    if options.if_changed and is_current(manifest, described, console):
        return
    report = [f"{files.encoder.parent} -> {options.output} for {target.name}"]
    results: dict[str, PipelineResult] = {}
    with staging(options.output) as folder:
        for name, part, passes in plans:
            observation = options.observation
            if observation.dump_dir is not None:
                observation = replace(observation, dump_dir=observation.dump_dir / name)
            result, told = run_pipeline(passes, part, console, observation)
            report += ["", *_part(name, part, result.model), *told]
            results[name] = result
        made = {ENCODER_FILE: results["encoder"].model, DECODER_FILE: results["decoder"].model}
        if missing := OPENVINO.missing(made[ENCODER_FILE]):
            raise PassFailedError("GP405", f"target {target.name} needs {OPENVINO.name!r}, but {missing}")
        target.check(made[DECODER_FILE])
        with console.activity("checking"):
            contract = hold_to_contract(
                made[DECODER_FILE], target.name, confirm=options.verify, allowed=options.allow_unfused
            )
        report += ["", *contract] if contract else []
        verdict = "not verified (--no-verify)"
        if options.verify:
            reference = EncoderDecoderModels(encoder, decoder, first)
            candidate = EncoderDecoderModels(made[ENCODER_FILE], made[DECODER_FILE], None)
            hint = "nothing was written; --no-verify writes it all the same"
            verdict = prove_by(lambda: compare_encoder_decoders(reference, candidate), console, hint).summary()
        about_tokenizer = add_tokenizer(files.decoder, folder, console) if options.tokenizer else []
        with console.activity("writing"):
            shared = [stage_model(part, folder, name, weights=options.weights) for name, part in made.items()]
            copy_companions(files.decoder, folder)
            records = {name: result.records for name, result in results.items()}
            write_manifest(manifest_of(folder, is_file=False), described, records, list(made))
            written = files_told(folder, shared) + about_tokenizer
    if console.quiet:
        for name in made:
            console.result(str(options.output / name))
    else:
        end = ["", f"verified  {verdict}", "", f"written to {options.output}", *(f"  {file}" for file in written)]
        console.result("\n".join([*report, *end]))


def _part(name: str, before: Model, after: Model) -> list[str]:
    from graphpass.analysis.caches import analyze_caches

    from .inventory import in_short, runs_with

    return [
        f"{name}   before  {in_short(before, analyze_caches(before))}",
        f"{' ' * len(name)}   after   {in_short(after, analyze_caches(after))}",
        *runs_with(after),
    ]
