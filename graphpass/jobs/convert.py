"""Convert a model, or an encoder and its decoder, for a target."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphpass.engine.split import PHASES
from graphpass.errors import PassFailedError, UsageError
from graphpass.ir.types import FORMATS
from graphpass.progress import STAGES, expect, stage, stages

from .failing_input import name_failing_input
from .job import Job, Proof, prove, run_passes
from .pipelines import pipeline_for
from .reading import read_model
from .result import Result, refuse_input
from .watch import Watch

if TYPE_CHECKING:
    from graphpass.artifacts.parts import FolderParts
    from graphpass.engine.passes import Pass
    from graphpass.engine.target import Target
    from graphpass.ir.model import Model
    from graphpass.reports.outcome import ModelReport, Outcome
    from graphpass.runtime.backends.encoder_decoder import EncoderDecoderModels
    from graphpass.runtime.encoder_decoder import EncoderDecoder
    from graphpass.verify import Comparison

Gate = Callable[[Path, "Outcome"], None]
"""Called with the staged folder and the outcome before the result is published; an exception keeps the old result."""


Look = Callable[[Sequence["ModelReport"]], None]
"""Called with the models before they are written: writing may append constants to a shared weight file."""


@dataclass(frozen=True, slots=True)
class _Part:
    """One model of a conversion.

    Attributes:
        name: Name of the part, such as ``encoder``; empty if the conversion has one model.
        model: The input.
        passes: The pipeline.
        file: Name of the file to write.
    """

    name: str
    model: Model
    passes: tuple[Pass[Any], ...]
    file: str


@dataclass(frozen=True, slots=True)
class _Plan:
    """Plan for the conversion of a model, or of an encoder and its decoder.

    Attributes:
        input: The model's file, or the folder of encoder and decoder.
        source: A file of the input, in the folder of its configurations and tokenizers.
        reference: The models that the result is compared with.
        inputs: All converted models of the input, by part.
        parts: The conversion of each model to write.
        beside: Files of the input that are copied unchanged.
    """

    input: Path
    source: Path
    reference: Model | EncoderDecoderModels
    inputs: dict[str, Model]
    parts: tuple[_Part, ...]
    beside: FolderParts | None = None

    @property
    def models(self) -> tuple[Model, ...]:
        """Return all models of the input."""
        return (*self.inputs.values(), *(self.beside.models if self.beside is not None else ()))


def convert(
    job: Job,
    target: Target,
    watch: Watch,
    *,
    allow_unfused: bool = False,
    tokenizer: bool = True,
    look: Look | None = None,
    gate: Gate | None = None,
) -> Outcome:
    """Convert a model for a target, verify the result, and write it.

    Args:
        job: The settings.
        target: The target.
        watch: Observes the work.
        allow_unfused: Whether to write a result that breaks the target's contract.
        tokenizer: Whether to convert the tokenizer beside the input.
        look: Called before the models are written.
        gate: Called before the result is published.

    Returns:
        The outcome, with a report on each part; `Outcome.up_to_date` if an earlier result is kept.

    Raises:
        GraphpassError: The input cannot be read, a pass refuses it, or the result breaks the contract or computes
            different outputs; nothing is written.
    """
    from graphpass.engine.pipeline import format_target
    from graphpass.reports.outcome import Outcome, sources_of

    job = _laid_out(job, target)
    with stages("converting", 2):  # reading, and describing the input
        plan, made = _prepared(watch, job, target, allow_unfused=allow_unfused, tokenizer=tokenizer)
        if graphs := made.earlier():
            sources = sources_of(plan.models)
            return Outcome(plan.input, job.output, graphs, sources, format_target(target), up_to_date=True)
        # A pipeline and a file for each part; the contract; proof and certificate.
        expect(2 * len(plan.parts) + 1 + 2 * job.verify, STAGES)
        with name_failing_input(plan.inputs.values()):
            return _convert(
                watch, job, target, plan, made, look, gate, allow_unfused=allow_unfused, tokenizer=tokenizer
            )


def stale(job: Job, target: Target, *, allow_unfused: bool = False, tokenizer: bool = True) -> str | None:
    """Return the reason why the result is stale; ``None`` if it is up to date.

    Args:
        job: The settings, with ``if_changed``.
        target: The target.
        allow_unfused: See `convert`.
        tokenizer: See `convert`.

    Raises:
        GraphpassError: The input cannot be read.
    """
    return _prepared(Watch(), _laid_out(job, target), target, allow_unfused=allow_unfused, tokenizer=tokenizer)[
        1
    ].stale()


def _laid_out(job: Job, target: Target) -> Job:
    """Return the job with the weight layout that the target's runtime requires.

    Raises:
        UsageError: GP230, the job shares weights, which the target writes to files of limited size.
    """
    if not target.shards_weights:
        return job
    if job.weights == "share":
        reason = f"target {target.name} writes weights to files of limited size, so it cannot share those of the input"
        raise UsageError("GP230", reason, "write with --weights copy")
    return replace(job, weights="shard")


def _prepared(watch: Watch, job: Job, target: Target, *, allow_unfused: bool, tokenizer: bool) -> tuple[_Plan, Result]:
    """Read the input.

    Returns:
        The plan of its conversion, and the result to write.
    """
    from graphpass.artifacts.companions import missing_packages
    from graphpass.engine.pipeline import format_target
    from graphpass.runtime.encoder_decoder import find_encoder_decoder, folder_of_part
    from graphpass.storage.digests import digest_of_file

    options: dict[str, Any] = {"target": format_target(target), "allow_unfused": allow_unfused}
    if target.made_for is not None:
        options["made_for"] = target.made_for
    if target.reads:
        options["reads"] = {str(file): digest_of_file(file) for file in target.reads}
    options["tokenizer"] = tokenizer and not missing_packages()
    if (files := find_encoder_decoder(job.model)) is not None:
        plan = _plan_folder(job, files, target)
    else:
        if (folder := folder_of_part(job.model)) is not None:
            watch.note(f"{job.model} is one part of the model in {folder}; pass the folder to convert all parts")
        plan = _plan_model(watch, job, target)
    passes = {part.name: part.passes for part in plan.parts}
    return plan, Result(watch, job, plan.inputs, passes, options, parts=plan.beside)


def _files(target: Target, usual: list[str]) -> list[str]:
    """Return the file names of the models to write."""
    return usual if target.split is None else [f"{name}.onnx" for name in PHASES]


def _skipped_folders(plan: _Plan) -> Iterator[str]:
    for folder in plan.beside.folders if plan.beside is not None else ():
        yield f"{folder} is not copied: it is a folder"


def _plan_model(watch: Watch, job: Job, target: Target) -> _Plan:
    from graphpass.artifacts.parts import find_folder_parts
    from graphpass.io import check_destination, is_same_place
    from graphpass.model_files import model_folder
    from graphpass.verify.session_forms import in_session_form

    loaded = read_model(job.model, job.declared, watch.choose)
    assert loaded.path is not None
    beside = find_folder_parts(loaded)
    if beside is not None and not target.needs_parts and not is_same_place(model_folder(job.model), beside.folder):
        watch.note(f"{job.model} is one part of the model in {beside.folder}; pass the folder to convert all parts")
        beside = None
    if beside is not None and target.dialect != loaded.dialect:
        message = (
            f"target {target.name} does not support {FORMATS[loaded.dialect]}, as the models beside {loaded.path.name}"
        )
        raise UsageError("GP229", message, f"name {loaded.path} to convert it alone")
    file = target.file_for(loaded) if beside is None else loaded.path.relative_to(beside.folder).as_posix()
    for name in _files(target, [file]):
        refuse_input(loaded, job.output / name)
    if loaded.dialect == target.dialect:
        check_destination(loaded, job.output / file)
    part = _Part("", loaded, pipeline_for(target, loaded), file)
    return _Plan(loaded.path, loaded.path, in_session_form(loaded), {"": loaded}, (part,), beside)


def _plan_folder(job: Job, files: EncoderDecoder, target: Target) -> _Plan:
    """Read encoder and decoder of a folder.

    Returns:
        The plan of their conversion.

    Raises:
        UsageError: GP226, ``cache=reorder`` does not support them.
    """
    from graphpass.runtime.encoder_decoder import read_parts

    if target.gives_up_fusion:
        raise UsageError("GP226", "cache=reorder does not support models of an encoder and a decoder", "omit it")
    models = read_parts(files, lambda file: read_model(file, job.declared if file == files.decoder else ()))
    inputs = {"encoder": models.encoder, "decoder": models.decoder}
    if models.first is not None and not files.merged:
        inputs["first decoder"] = models.first
    for model in inputs.values():
        for name in target.part_files:
            refuse_input(model, job.output / name)
    passes = target.encoder_pipeline(models.encoder, files.first), target.decoder_pipeline(models.decoder, files.first)
    parts = (
        _Part("encoder", models.encoder, passes[0], target.part_files[0]),
        _Part("decoder", models.decoder, passes[1], target.part_files[1]),
    )
    return _Plan(files.encoder.parent, files.decoder, models, inputs, parts)


def _convert(
    watch: Watch,
    job: Job,
    target: Target,
    plan: _Plan,
    made: Result,
    look: Look | None,
    gate: Gate | None,
    *,
    allow_unfused: bool,
    tokenizer: bool,
) -> Outcome:
    """Run the pipelines, verify the result, and write it with configurations and tokenizers.

    Returns:
        The outcome, with a report on each part.

    Raises:
        PassFailedError: GP405, the encoder does not meet a condition of the target.
    """
    from graphpass.artifacts.split import stage_split
    from graphpass.engine.conditions import ONNX, OPENVINO
    from graphpass.engine.pipeline import format_target
    from graphpass.io import check_destination
    from graphpass.reports.contract import hold_to_contract
    from graphpass.reports.outcome import ModelReport, Outcome, files_in, sources_of

    models: dict[str, Model] = {}
    reports: list[ModelReport] = []
    split, written = target.split, None
    with made.staged(_files(target, [part.file for part in plan.parts])) as folder:
        for part in plan.parts:
            dumps = job.dump_dir / part.name if job.dump_dir is not None else None
            result, timings = run_passes(part.passes, part.model, replace(job, dump_dir=dumps), watch)
            models[part.file] = result.model
            reports.append(
                ModelReport(part.name, part.file, part.model, result.model, part.passes, result.records, timings)
            )
        prepared = reports[-1].after
        if split is not None:
            phases, written = stage_split(prepared, split, folder, job.weights)
            models = {f"{name}.onnx": model for name, model in phases.items()}
        *others, main = models.values()
        encoder = others[0] if others else None
        dialect = OPENVINO if target.dialect == "openvino" else ONNX
        if encoder is not None and (missing := dialect.missing(encoder)):
            raise PassFailedError("GP405", f"target {target.name} requires {dialect.name!r}, but {missing}")
        with stage("checking"):
            allowed = allow_unfused or target.gives_up_fusion
            contract = hold_to_contract(main, target, confirm=job.verify, allowed=allowed, encoder=encoder)
        for name, model in models.items() if split is None else ():
            check_destination(model, job.output / name)
        comparison = None
        if job.verify:
            made.copy_ahead(folder, models.values() if split is None else ())
            hint = "" if others else "--verify-each names the pass, "
            comparison = prove(
                lambda: _compare(target, plan, tuple(models.values()), job.proof, prepared), hint, job.proof.require
            )
        notes = _add_tokenizer(plan.source, folder) if tokenizer and main.dialect == "openvino" else ()
        notes = (*notes, *_skipped_folders(plan))
        if look is not None:
            look(reports)
        records = {report.name: report.records for report in reports}
        texts = target.files(main, plan.source) if encoder is None else target.files_beside(encoder, main, plan.source)
        with stage("compiling"):
            target.finish(folder, [*models])
        made.write(folder, models, records, plan.source, texts, comparison, written)
        outcome = Outcome(
            plan.input,
            job.output,
            tuple(job.output / name for name in models),
            sources_of(plan.models),
            format_target(target),
            models=tuple(reports),
            contract=contract,
            comparison=comparison,
            files=files_in(folder),
            written=made.written,
            notes=notes,
        )
        if gate is not None:
            gate(folder, outcome)
    return outcome


def _compare(target: Target, plan: _Plan, results: tuple[Model, ...], proof: Proof, prepared: Model) -> Comparison:
    """Return the comparison with the input; for a split, also of the model before."""
    from graphpass.analysis.caches.encoders import is_encoder
    from graphpass.engine.manager import PassManager
    from graphpass.ir.model import Model
    from graphpass.passes.convert.drop_ports import DropPorts
    from graphpass.runtime.backends.encoder_decoder import EncoderDecoderModels
    from graphpass.verify.encoder_decoder import compare_encoder_decoders
    from graphpass.verify.on_device import compare_on_device
    from graphpass.verify.pair import compare_pair
    from graphpass.verify.session_forms import notes_on_form

    reference = plan.reference
    if isinstance(reference, Model):
        # An encoder computes different outputs for a whole text and for its prefix.
        examine = not reference.analysis(is_encoder)
        drops = tuple(each for part in plan.parts for each in part.passes if isinstance(each, DropPorts))
        reference = PassManager(drops).run(reference).model if drops else reference
        options = {**proof.settings, "examine": examine, "padding": target.reads_padding}
        whole = compare_on_device(reference, prepared, target.proving_device, **options)
        notes = (note for model in plan.inputs.values() for note in notes_on_form(model))
        dropped = (f"output {name}, which drop-ports removes" for each in drops for name in each.outputs)
        whole = replace(whole, skipped=(*whole.skipped, *notes, *dropped))
        if target.split is None or not whole.passed:
            return whole
        return whole.followed_by(compare_pair(reference, results[0], results[1], target.split))
    encoder, decoder = results
    models = EncoderDecoderModels(encoder, decoder, None)
    return compare_encoder_decoders(reference, models, steps=proof.steps, atol=proof.atol, rtol=proof.rtol)


def _add_tokenizer(model_file: Path, folder: Path) -> tuple[str, ...]:
    """Convert the tokenizer in the folder of an input file.

    Returns:
        Notes; empty if the folder has no tokenizer.
    """
    from graphpass.artifacts.companions import has_tokenizer, missing_packages, stage_tokenizer

    if not has_tokenizer(model_file):
        return ()
    if missing := missing_packages():
        return (f"tokenizer not converted: {', '.join(missing)} not installed; pip install 'graphpass[genai]'",)
    with stage("converting the tokenizer"):
        return (f"tokenizer converted by {stage_tokenizer(model_file, folder)}",)
