"""The target `qnn`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.engine.conditions import ONNX
from graphpass.engine.findings import Finding, Observation
from graphpass.engine.passes import Pass
from graphpass.engine.pipeline import parse
from graphpass.engine.split import Split
from graphpass.engine.target import Target
from graphpass.ir.cache import Inventory
from graphpass.ir.model import Model
from graphpass.ir.quantizers import rounds_activations
from graphpass.targets.qnn import rules, trial
from graphpass.targets.rules import require_onnx, upgrade_opset


@dataclass(frozen=True)
class QNN(Target):
    """Qualcomm's HTP, the NPU of Snapdragon, by ONNX Runtime's QNN provider.

    The result is a pair: ``prefill.onnx`` processes the prompt in chunks, ``decode.onnx`` one token a step. Both have
    static shapes and share one weight file. `graphpass.runtime.open_pair` runs them as one session, with
    ``device="QNN"`` or on the CPU. The trial disables the fallback to the CPU, so that all nodes run on HTP.

    Options:
        prompt: Length of the longest prompt, in tokens.
        chunk: Tokens that the prefill model processes in a step; by default ``prompt``.
        capacity: Positions of each cache, prompt included.
        precision: Type of hidden states, weights and caches. HTP computes f32 in f16. By default ``f16``, but ``f32``
            for models with activations quantized to integers, which f16 would round differently.
        compile: Whether to also write ``prefill_ctx.onnx`` and ``decode_ctx.onnx``, compiled for HTP (EPContext) by the
            installed version of QNN.
    """

    name = "qnn"
    description = "Qualcomm's HTP by ONNX Runtime: a prefill and a decode model of static shapes"
    dialect = "onnx"
    output_file = "decode.onnx"
    contract = (ONNX,)
    predict = staticmethod(rules.predict)

    prompt: int = 64
    chunk: int | None = None
    capacity: int = 256
    precision: Literal["f16", "f32"] | None = None
    compile: bool = False

    @property
    def split(self) -> Split:
        # Only static models contain unrolled loops.
        after = "flatten-rows,lower-for-htp"
        return Split(self.prompt, self.prompt if self.chunk is None else self.chunk, self.capacity, after)

    def pipeline(self, model: Model) -> tuple[Pass[Any], ...]:
        """Return the passes, as `Target.pipeline`.

        Raises:
            UnsupportedError: GP366, the model is OpenVINO IR.
        """
        require_onnx(model, self.name)
        # Experts are fused, then lowered to products over all experts, because HTP crashes on gathered weights.
        # Static models require caches with a heads axis and a Concat.
        steps = [*upgrade_opset(model), "fuse-experts", "expand-latents", "separate-past", "lower-attention"]
        steps += ["zero-padding"]
        # HTP's compiler fails on norms with a Reciprocal, and lacks FastGelu in f32.
        steps += ["fuse-functions{activations=false}", "lower-operators{f32-norms=true}", "flatten-rows"]
        steps += ["lower-boolean-gathers", "lower-einsum"]
        windows = any(block.window is not None for block in analyze_caches(model).attention)
        # Slots may have padding, so positions differ from indices of slots.
        steps += ["expose-position-ids"]
        steps += ["window-from-positions{required=false}"] if windows else []
        # HTP rounds angles to f16. A new token may follow a full cache.
        steps += [f"tabulate-angles{{positions={self.capacity + 1}}}"]
        is_quantized = rounds_activations(model)
        steps += ["negate-quantized-ports"] if is_quantized else []
        precision = self.precision or ("f32" if is_quantized else "f16")
        steps += ["change-precision{to=f16}"] if precision == "f16" else []
        steps += ["lower-for-htp"]
        return parse(",".join(steps))

    def finish(self, folder: Path, files: Sequence[str]) -> None:
        if self.compile:
            for name in files:
                trial.compile_file(folder / name)

    def predict_beside(self, encoder: Model, decoder: Model, inventory: Inventory) -> tuple[Finding, ...]:
        """See `Target.predict_beside`; the encoder is the prefill model.

        Returns:
            Findings on both models.
        """
        return rules.predict_pair(encoder, decoder, inventory)

    def observe(self, model: Model) -> Observation | str:
        return trial.observe(model, model)

    def observe_beside(self, encoder: Model, decoder: Model) -> Observation | str:
        """See `Target.observe_beside`; the encoder is the prefill model.

        Returns:
            The observation, or the reason why no trial is possible.
        """
        return trial.observe(encoder, decoder)
