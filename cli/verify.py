"""``graphpass verify``."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from graphpass.jobs.job import Requirement
from graphpass.progress import stage, stages

from .console import Console, console_command, format_option
from .models import PATH, load_model
from .proof import proof_options

if TYPE_CHECKING:
    from graphpass.ir.model import Model


def _ids(context: click.Context, parameter: click.Parameter, text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError as error:
        raise click.BadParameter(f"{text!r} is not a list of token ids such as 1,5,9", context, parameter) from error


def _properties(context: click.Context, parameter: click.Parameter, texts: tuple[str, ...]) -> dict[str, object]:
    properties: dict[str, object] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (name and equals):
            raise click.BadParameter(f"{text!r} is not a property such as NPUW_DEVICES=CPU", context, parameter)
        properties[name] = value
    return properties


def _check(console: Console, result: Path, reference: Path | None, form: str) -> None:
    from graphpass.artifacts.certificate import check_certificate, summarize_certificate

    with stages("checking the certificate", 1 + (reference is not None)):
        known = None if reference is None else load_model(reference)
        with stage("hashing the files of the result"):
            certificate = check_certificate(result, known)
    console.report(form, lambda: summarize_certificate(certificate), lambda: certificate)


def _read(reference: Path, candidate: Path) -> tuple[Path, Path] | tuple[Model, Model]:
    """Return both models, or both folders if each has an encoder and its decoder."""
    from graphpass.runtime.encoder_decoder import find_encoder_decoder

    if find_encoder_decoder(reference) is not None and find_encoder_decoder(candidate) is not None:
        return reference, candidate
    return load_model(reference), load_model(candidate)


@console_command("verify", limited=True)
@click.argument("reference", type=PATH, required=False)
@click.argument("candidate", type=PATH, required=False)
@click.option("--certificate", type=PATH, metavar="RESULT", help="Check RESULT's files against its certificate.")
@click.option(
    "--steps", type=click.IntRange(min=0), default=12, show_default=True, help="Greedy steps after each prefill."
)
@click.option("--prompt-ids", callback=_ids, metavar="1,5,9", help="Token ids of the first prompt.")
@click.option(
    "--atol", type=click.FloatRange(min=0), help="Absolute tolerance; by default 1e-3 for models in f32, more for f16."
)
@click.option("--rtol", type=click.FloatRange(min=0), help="Relative tolerance, with the same default.")
@click.option(
    "--edits", is_flag=True, help="Also trim, rewind and reorder the caches, restore snapshots, and verify draft trees."
)
@click.option(
    "--padding",
    type=click.Choice(["left", "right"]),
    default="left",
    show_default=True,
    help="Side on which CANDIDATE supports padding of shorter rows; right for results of ort-genai.",
)
@click.option(
    "--device",
    default="CPU",
    show_default=True,
    help="Device of the candidate: GPU or NPU (OpenVINO), WEBGPU (ONNX Runtime), QNN (pairs only).",
)
@click.option(
    "--property",
    "properties",
    multiple=True,
    callback=_properties,
    metavar="NAME=VALUE",
    help="OpenVINO property of the device.",
)
@proof_options
@format_option("text", "json")
def command(
    console: Console,
    reference: Path | None,
    candidate: Path | None,
    certificate: Path | None,
    steps: int,
    prompt_ids: tuple[int, ...] | None,
    atol: float | None,
    rtol: float | None,
    edits: bool,
    budget: str | None,
    require: Requirement,
    allow: tuple[str, ...],
    all_layers: bool,
    padding: Literal["left", "right"],
    device: str,
    properties: dict[str, object],
    form: str,
) -> None:
    """Run two models in lockstep and report the first difference.

    REFERENCE and CANDIDATE are each an .onnx file, an .xml file, or a folder with one of them, or both are folders
    with an encoder and its decoder. Several sequences are run, with a reset before each: a prefill, then greedy steps
    that feed the reference's tokens to both models. With --edits, the caches of both are also edited as in speculative
    decoding and beam search. Models too large for the budget are compared layer by layer. Exits with 1 if the models
    differ, or, with --require proven, if anything but padding is compared by numbers.

    The candidate may run on another device than the CPU. GRAPHPASS_GPU_ENVIRONMENT may name an environment that
    emulates a GPU. --property NPUW_DEVICES=CPU runs a model for NPUs on the CPU. WEBGPU needs graphpass[webgpu] and an
    adapter, see `graphpass devices`. QNN needs graphpass[qnn].

    CANDIDATE may be the folder of a prefill and a decode model. The pair is run as one session, in a second process,
    with prompts of 1 token, of about a chunk, and of the longest length, each followed by greedy steps.

    With --certificate, all files of RESULT, and REFERENCE if present, are compared with the digests in RESULT's
    graphpass.json. Exits with 1 if a file changed, was added or removed, if the certificate was edited, or if the
    reference differs; else reports the proof. A certificate is not a signature: write access to the result is enough
    to replace it.
    """
    if certificate is not None:
        if candidate is not None:
            raise click.UsageError(
                "--certificate accepts at most one model: the reference that the result was proven against"
            )
        _check(console, certificate, reference, form)
        return
    if reference is None or candidate is None:
        raise click.UsageError("expected two models, or --certificate RESULT")
    from graphpass.artifacts.split import find_pair
    from graphpass.reports.outcome import proof_text
    from graphpass.verify.models import verify
    from graphpass.verify.on_device import compare_pair_on_device

    pair = find_pair(candidate)
    is_set = atol is not None or rtol is not None or padding == "right"
    if pair is not None and (edits or all_layers or allow or properties or budget or prompt_ids or is_set):
        raise click.UsageError("of the options of a comparison, prefill and decode models accept only --device")
    with stages("verifying", 3):  # reading both, comparing
        if pair is not None:
            prefill, decode = map(load_model, pair)
            comparison = compare_pair_on_device(load_model(reference), prefill, decode, device.upper())
        else:
            comparison = verify(
                *_read(reference, candidate),
                steps=steps,
                prompt_ids=prompt_ids,
                atol=atol,
                rtol=rtol,
                edits=edits,
                budget=budget,
                all_layers=all_layers,
                allow=allow,
                device=device,
                properties=properties,
                padding=padding,
            )
    text = functools.partial(proof_text, comparison, verbose=console.verbose)
    console.report(form, lambda: "\n".join(text()), comparison.to_json)
    if not comparison.passed or (require == "proven" and not comparison.is_proven):
        raise click.exceptions.Exit(1)
