"""``graphpass convert`` of a folder that holds an encoder and its decoder."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from graphpass.errors import UsageError, VerificationError

from .models import load_model
from .pipelines import run_pipeline
from .results import files_told, refuse_input
from .tokenizers import add_tokenizer

if TYPE_CHECKING:
    from pathlib import Path

    from graphpass.encoder_decoder import EncoderDecoder
    from graphpass.model import Model
    from graphpass.runtime.encoder_decoder import EncoderDecoderModels
    from graphpass.storage.write import Weights
    from graphpass.targets import Target

    from .console import Console
    from .pipelines import Observation

__all__ = ["Options", "convert_folder"]


@dataclass(frozen=True)
class Options:
    """What ``convert`` was told."""

    output: Path
    if_changed: bool
    verify: bool
    declared: tuple[str, ...]
    allow_unfused: bool
    weights: Weights
    tokenizer: bool
    observation: Observation


def convert_folder(console: Console, files: EncoderDecoder, target: Target, options: Options) -> None:
    """Convert both parts, compare them with the input, and write them and what lies beside the input.

    Raises:
        UsageError: GP226 an option or the target is not for such models; GP203 a file of the input
            would be overwritten.
        VerificationError: GP601, the result does not compute the same as the input.
        GraphpassError: As passes, checks and writing raise.
    """
    from graphpass.conditions import OPENVINO
    from graphpass.encoder_decoder import DECODER_FILE, ENCODER_FILE
    from graphpass.errors import PassFailedError
    from graphpass.runtime.encoder_decoder import EncoderDecoderModels
    from graphpass.storage.companions import copy_companions
    from graphpass.storage.staging import staging
    from graphpass.storage.write import stage_model

    from .contract import hold_to_contract

    for given, name in ((target.gives_up_fusion, "cache=reorder"), (options.if_changed, "--if-changed")):
        if given:
            raise UsageError("GP226", f"{name} is not for models of an encoder and a decoder", "leave it out")
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
    report = [f"{files.encoder.parent} -> {options.output} for {target.name}"]
    results: list[Model] = []
    with staging(options.output) as folder:
        for name, part, passes in plans:
            observation = options.observation
            if observation.dump_dir is not None:
                observation = replace(observation, dump_dir=observation.dump_dir / name)
            result, told = run_pipeline(passes, part, console, observation)
            report += ["", *_part(name, part, result.model), *told]
            results.append(result.model)
        if missing := OPENVINO.missing(results[0]):
            raise PassFailedError("GP405", f"target {target.name} needs {OPENVINO.name!r}, but {missing}")
        target.check(results[1])
        with console.activity("checking"):
            contract = hold_to_contract(results[1], target.name, confirm=options.verify, allowed=options.allow_unfused)
        report += ["", *contract] if contract else []
        verdict = "not verified (--no-verify)"
        if options.verify:
            reference = EncoderDecoderModels(encoder, decoder, first)
            verdict = _prove(reference, EncoderDecoderModels(results[0], results[1], None), console)
        about_tokenizer = add_tokenizer(files.decoder, folder, console) if options.tokenizer else []
        with console.activity("writing"):
            made = dict(zip((ENCODER_FILE, DECODER_FILE), results, strict=True))
            shared = [stage_model(part, folder, name, weights=options.weights) for name, part in made.items()]
            copy_companions(files.decoder, folder)
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


def _prove(reference: EncoderDecoderModels, candidate: EncoderDecoderModels, console: Console) -> str:
    from graphpass.errors import UnsupportedError
    from graphpass.verify.encoder_decoder import compare_encoder_decoders

    with console.activity("verifying"):
        try:
            comparison = compare_encoder_decoders(reference, candidate)
        except UnsupportedError as error:
            message = f"the result cannot be verified: {error.message}"
            raise UnsupportedError(error.id, message, "--no-verify writes it without proof") from error
    if not comparison.passed:
        hint = "nothing was written; --no-verify writes it all the same"
        reason = f"the result does not compute the same as the input\n{comparison.summary()}"
        raise VerificationError("GP601", reason, hint)
    return comparison.summary()
