"""The target `ort-genai`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from graphpass.analysis.caches.encoders import is_encoder
from graphpass.analysis.caches.extra_outputs import extra_outputs
from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.analysis.caches.packed import is_packed
from graphpass.engine.findings import Finding, Observation
from graphpass.engine.passes import Pass
from graphpass.engine.pipeline import parse
from graphpass.errors import UnsupportedError
from graphpass.ir.cache import Inventory
from graphpass.ir.inputs import EMBEDDINGS, is_merged, narrow_inputs
from graphpass.ir.model import Model
from graphpass.targets.ort.genai_config import (
    CONFIG_SOURCE,
    are_caches_named,
    genai_config,
    require_sizes,
    unread_inputs,
    why_no_generic_decoder,
)
from graphpass.targets.ort.genai_draft import copy_draft, draft_files
from graphpass.targets.ort.genai_parts import require_tokens
from graphpass.targets.ort.genai_states import STATES_SOURCE, why_no_mtp
from graphpass.targets.ort.genai_whisper import (
    WHISPER_SOURCE,
    audio_processor,
    whisper_config,
    why_no_audio,
    why_no_pair,
    why_no_whisper,
)
from graphpass.targets.ort.target import ORT
from graphpass.targets.rules import drop_ports, encoder_error, require_onnx


@dataclass(frozen=True)
class ORTGenAI(ORT):
    """onnxruntime-genai on ONNX Runtime, as a folder that it opens.

    The folder has the model, ``genai_config.json`` of type ``decoder``, and the tokenizer. Past and present share a
    buffer if attention supports it, except in hybrids. Prompts in a batch of a hybrid must have the same length.

    A decoder of embeddings keeps the models beside it, with their files. ``genai_config.json`` has sections for the
    embedding model and the model of images, and the input's type if onnxruntime-genai has it. Without a model of
    images, the type is ``decoder-pipeline``.

    A model that returns hidden states, and a head that reads them as ``hidden_states``, become two folders for
    ``MtpGenerator``. It requires logits in f16, and the head's own states as output ``hidden_states_out``.

    An audio encoder and its decoder become a folder of type ``whisper``: the encoder returns the caches of cross
    attention, and past and present are two buffers, so that beams can be reordered.

    Options:
        device: The execution provider, see `ort`; ``genai_config.json`` selects it.
        cache: Always ``past``.
        padding: By default ``right``, as onnxruntime-genai pads batches.
        batch: Always ``one``: onnxruntime-genai refuses to append tokens to a batch with a past.
        context: Largest number of positions; by default that in ``config.json``.
        logits: With ``last``, only the logits of each row's last token are computed; see `last-logits`.
        activations: Type of activations in products with quantized weights; see `fuse-quantized-weights`.
        precision: Type of hidden states, weights and caches, see `ort`: ``f16``, or ``bf16`` on ``cuda``. Logits stay
            f32.
        cache_precision: With ``i8`` or ``i4``, keys and values are stored in 8 or 4 bits; see `quantize-caches`.
        calibration: File of prompts for their scales; the option ``tokens`` of `quantize-caches`.
        draft: Folder of a smaller model with the same vocabulary, written by this target; onnxruntime-genai drafts with
            it. Its files are copied to the folder ``draft`` of the result.
    """

    name = "ort-genai"
    description = "onnxruntime-genai: a folder with genai_config.json, caches in one buffer where attention allows it"

    part_files = ("encoder.onnx", "decoder.onnx")
    needs_parts = True

    cache: Literal["past"] = "past"
    batch: Literal["one"] = "one"
    padding: Literal["any", "right"] | None = "right"
    draft: str | None = None

    @property
    def lays_out_caches(self) -> bool:
        """See `ORT.lays_out_caches`; all caches are allocated with one order of axes."""
        return True

    @property
    def pads_values(self) -> bool:
        """See `ORT.pads_values`; onnxruntime-genai allocates all caches with one shape."""
        return True

    @property
    def expands_latents(self) -> bool:
        """See `ORT.expands_latents`; GroupQueryAttention stores only keys and values."""
        return True

    @property
    def feeds_positions(self) -> bool:
        """See `ORT.feeds_positions`; onnxruntime-genai's ``position_inputs.cpp`` computes them from the mask."""
        return True

    def pipeline(self, model: Model) -> tuple[Pass[Any], ...]:
        """Return the passes, as `Target.pipeline`.

        Raises:
            PreconditionError: GP396, the number of positions or of token ids, or an id of image tokens, is unknown.
            ReadError: GP116, a configuration beside the model is not a JSON object.
            UnsupportedError: GP338, the model is an encoder; GP366, the model is OpenVINO IR; GP397, the draft's folder
                is not one of this target.
        """  # noqa: DOC501 - encoder_error is an UnsupportedError
        require_onnx(model, self.name)
        if model.analysis(is_encoder):
            raise encoder_error(self.name, "ort")
        refused = any(value.element_type != "i32" for value in narrow_inputs(model.graph))
        steps = [
            *drop_ports(model.analysis(extra_outputs), unread_inputs(model)),
            *(["widen-inputs"] if refused else []),
        ]
        passes = (*parse(",".join(steps)), *super().pipeline(model))
        require_sizes(model, model.path, self.context)
        if EMBEDDINGS in model.graph.parameters:
            require_tokens(model, model.path)
        if self.draft is not None:
            draft_files(Path(self.draft))
        are_named = are_caches_named(model) and not is_packed(model, analyze_caches(model))
        return passes if are_named else (*passes, *parse("rename-caches"))

    def encoder_pipeline(self, model: Model, first: Path | None) -> tuple[Pass[Any], ...]:
        """See `Target.encoder_pipeline`.

        Returns:
            The passes, in order.

        Raises:
            UnsupportedError: GP366, the model is OpenVINO IR; GP397, onnxruntime-genai does not support the encoder.
            UsageError: GP226, an option does not apply to encoder-decoders.
        """
        require_onnx(model, self.name)
        _refuse(why_no_audio(model))
        return super().encoder_pipeline(model, first)

    def decoder_pipeline(self, model: Model, first: Path | None) -> tuple[Pass[Any], ...]:
        """See `Target.decoder_pipeline`.

        Returns:
            The passes, in order.

        Raises:
            UnsupportedError: GP397, onnxruntime-genai does not support the decoder; otherwise as `pipeline`.
        """
        require_onnx(model, self.name)
        _refuse(None if is_merged(model.graph) else why_no_whisper(model))
        return super().decoder_pipeline(model, first)

    def predict(self, model: Model, inventory: Inventory) -> tuple[Finding, ...]:
        if inventory.of_kind("cross"):
            reason, source = why_no_whisper(model), WHISPER_SOURCE
        else:
            reason, source = why_no_generic_decoder(model), CONFIG_SOURCE
        refused = () if reason is None else (Finding.of_model(model, "refused", reason, source),)
        hybrid = inventory.kind == "hybrid" and not refused
        limit = "prompts of a batch must have equal length: padding enters recurrent states and windows"
        limited = (Finding.of_model(model, "taken", limit),) if hybrid else ()
        unread = None if refused else why_no_mtp(model)
        states = () if unread is None else (Finding.of_model(model, "taken", unread, STATES_SOURCE),)
        return (*refused, *limited, *states, *super().predict(model, inventory))

    def predict_beside(self, encoder: Model, decoder: Model, inventory: Inventory) -> tuple[Finding, ...]:
        findings = self.predict(decoder, inventory)
        if any(finding.verdict == "refused" and finding.subject == "model" for finding in findings):
            return findings
        reason = why_no_audio(encoder) or why_no_pair(encoder, decoder)
        refused = () if reason is None else (Finding.of_model(encoder, "refused", reason, WHISPER_SOURCE),)
        return (*refused, *findings)

    def attempt(self, model: Model) -> Observation | str:
        from graphpass.targets.ort.genai_trial import observe

        if analyze_caches(model).of_kind("cross"):
            return "an encoder in another file computes its caches: pass the folder of both"
        return observe(model, self.context)

    def observe_beside(self, encoder: Model, decoder: Model) -> Observation | str:
        from graphpass.targets.ort.genai_trial import observe_whisper

        if self.device != "cpu":
            return self.observe(decoder)
        return observe_whisper(encoder, decoder, self.context)

    def files(self, model: Model, source: Path | None) -> dict[str, str]:
        """See `Target.files`.

        Returns:
            The text of ``genai_config.json``.

        Raises:
            ReadError, PreconditionError, UnsupportedError: As `graphpass.targets.ort.genai_config.genai_config`.
        """
        draft = None if self.draft is None else Path(self.draft)
        return {"genai_config.json": genai_config(model, source, self.context, self.device, draft)}

    @property
    def reads(self) -> tuple[Path, ...]:
        """See `Target.reads`.

        Returns:
            Configuration and graph of the draft.
        """
        return () if self.draft is None else draft_files(Path(self.draft))

    def finish(self, folder: Path, files: Sequence[str]) -> None:  # noqa: ARG002
        """See `Target.finish`; copies the draft.

        Raises:
            OSError: The file system reports an error.
            ReadError, UnsupportedError: As `graphpass.targets.ort.genai_draft.copy_draft`.
        """
        if self.draft is not None:
            copy_draft(Path(self.draft), folder)

    def files_beside(self, encoder: Model, decoder: Model, source: Path | None) -> dict[str, str]:
        """See `Target.files_beside`.

        Returns:
            The text of ``genai_config.json``, and of ``audio_processor_config.json`` if ``source`` states a processor.

        Raises:
            UnsupportedError: GP397, as `graphpass.targets.ort.genai_whisper.whisper_config`.
        """
        processor = audio_processor(source)
        return {
            "genai_config.json": whisper_config(encoder, decoder, source, self.context, self.device),
            **({} if processor is None else {"audio_processor_config.json": processor}),
        }


def _refuse(reason: str | None) -> None:
    """Refuse a model, if there is a reason.

    Raises:
        UnsupportedError: GP397, there is a reason.
    """
    if reason is not None:
        hint = "use --target ort for programs that call ONNX Runtime, or --target cpu for openvino.genai"
        raise UnsupportedError("GP397", f"onnxruntime-genai does not support this model: {reason}", hint)
