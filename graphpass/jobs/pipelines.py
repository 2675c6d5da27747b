"""Choose the passes of a conversion."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graphpass.engine.passes import Pass
    from graphpass.engine.target import Target
    from graphpass.ir.model import Model


def pipeline_for(target: Target, model: Model) -> tuple[Pass[Any], ...]:
    """Return the pipeline of ``target``, after passes that any target needs.

    Functions of the model's own are inlined: targets choose passes by operators, of which functions hide some. Inputs
    that choose nothing become constants: no runtime feeds them. Zeros for padding that nothing reads are dropped: they
    keep the mask in use where a runtime has attention of its own.
    """
    from graphpass.engine.manager import PassManager
    from graphpass.passes.convert.fix_input import FixInput
    from graphpass.passes.masks.drop_row_guards import GUARD, DropRowGuards
    from graphpass.runtime.sessions.inputs import idle_inputs

    first = _inlined(model)
    made = PassManager(first).run(model).model if first else model
    then: tuple[Pass[Any], ...] = tuple(FixInput(input=name) for name in idle_inputs(made))
    then += (DropRowGuards(),) if any(True for _ in GUARD.find(made.graph)) else ()
    made = PassManager(then).run(made).model if then else made
    return (*first, *then, *target.pipeline(made))


def _inlined(model: Model) -> tuple[Pass[Any], ...]:
    if model.dialect != "onnx":
        return ()
    from graphpass.dialects.onnx.model import OnnxModel
    from graphpass.passes.convert.inline_functions import InlineFunctions, own_functions

    assert isinstance(model, OnnxModel)
    return (InlineFunctions(),) if own_functions(model) else ()
