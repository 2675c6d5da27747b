"""Define the target `ort`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from graphpass.engine.conditions import ONNX
from graphpass.engine.passes import Pass
from graphpass.engine.pipeline import parse
from graphpass.engine.target import Target
from graphpass.errors import UnsupportedError
from graphpass.ir.model import Model
from graphpass.targets.ort import rules, trial


@dataclass(frozen=True)
class ORT(Target):
    """ONNX Runtime, on CPU or CUDA.

    Operators and names stay as they were exported, caches go in as past and come out as present.

    Options:
        cache: With ``reorder`` the inputs ``src_idx`` and ``dst_idx`` move slots of the pasts, which are cut to the
            length that the mask leaves for them.
    """

    name = "ort"
    description = "ONNX Runtime: past and present as inputs and outputs"
    dialect = "onnx"
    output_file = "model.onnx"
    contract = (ONNX,)
    predict = staticmethod(rules.predict)
    observe = staticmethod(trial.observe)

    cache: Literal["past", "reorder"] = "past"

    def pipeline(self, model: Model) -> tuple[Pass[Any], ...]:
        """See `Target.pipeline`.

        Raises:
            UnsupportedError: GP366, the model is OpenVINO IR.
        """
        if missing := ONNX.missing(model):
            raise UnsupportedError("GP366", f"target {self.name} writes ONNX, but {missing}", ONNX.hint)
        return parse("insert-reorder{form=onnx}") if self.cache == "reorder" else ()
