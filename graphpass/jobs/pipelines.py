"""Choose the passes of a conversion."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graphpass.engine.passes import Pass
    from graphpass.engine.target import Target
    from graphpass.ir.model import Model


def pipeline_for(target: Target, model: Model) -> tuple[Pass[Any], ...]:
    """Return the pipeline of ``target``, after `inline-functions` if ``model`` has functions of its own.

    Targets choose passes by a model's operators, of which functions hide some.
    """
    if model.dialect != "onnx":
        return target.pipeline(model)
    from graphpass.dialects.onnx.model import OnnxModel
    from graphpass.engine.manager import PassManager
    from graphpass.passes.convert.inline_functions import InlineFunctions, own_functions

    assert isinstance(model, OnnxModel)
    inline: tuple[Pass[Any], ...] = (InlineFunctions(),) if own_functions(model) else ()
    return (*inline, *target.pipeline(PassManager(inline).run(model).model if inline else model))
