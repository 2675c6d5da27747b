"""The pass `upgrade-opset`."""

from __future__ import annotations

from dataclasses import dataclass

from graphpass.dialects.onnx.model import OnnxModel
from graphpass.dialects.onnx.walk import opset_of
from graphpass.engine.passes import Done, Pass, Skipped

#: The first opset with LayerNormalization; the next one changes Split and reductions.
_DEFAULT = 17


@dataclass(frozen=True)
class UpgradeOpset(Pass[OnnxModel]):
    """Convert an ONNX model to a later opset.

    Other passes write operators as opset 13 and later define them, with axes as inputs, and
    opset 17 adds LayerNormalization. The conversion is that of
    ``onnx.version_converter``; weights, names, declared shapes and operators of other domains are unchanged.

    Options:
        to: The version of ONNX's operators; models of this version or a later one are unchanged.

    Before:
        Unsqueeze(x) {axes=[1]}
    After:
        Unsqueeze(x, [1])

    Raises:
        UnsupportedError: GP352, onnx.version_converter cannot convert the model.
    """

    name = "upgrade-opset"
    dialect = "onnx"

    to: int = _DEFAULT

    def run(self, model: OnnxModel) -> Done | Skipped:
        if (opset := opset_of(model.proto)) >= self.to:
            return Skipped(f"the model is of opset {opset}")
        from graphpass.dialects.onnx.opsets import upgraded

        model.proto = upgraded(model.proto, self.to)
        model.mark_edited()
        return Done({"opsets upgraded": self.to - opset})
