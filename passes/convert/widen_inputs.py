"""The pass `widen-inputs`."""

from __future__ import annotations

from dataclasses import dataclass

from graphpass.engine.passes import Done, Pass
from graphpass.ir.inputs import narrow_inputs
from graphpass.ir.model import Model


@dataclass(frozen=True)
class WidenInputs(Pass[Model]):
    """Declare token ids, masks and positions as i64, and convert them inside.

    openvino.genai, NPUW and onnxruntime-genai feed these inputs as i64, whatever type the model declares.

    Shapes:
        unchanged

    Before:
        attention_mask (Parameter, f32) -> Subtract
    After:
        attention_mask (Parameter, i64) -> Convert(f32) -> Subtract
    """

    name = "widen-inputs"

    def run(self, model: Model) -> Done:
        rewriter, narrow = model.rewriter(), narrow_inputs(model.graph)
        for value in narrow:
            converted = rewriter.op("Convert", value, name=f"{value.name}/narrowed", to=value.element_type)
            rewriter.redirect_uses(value, converted, lambda _: True)
            rewriter.declare_type(value, "i64")
        rewriter.finish()
        return Done({"inputs widened": len(narrow)})
