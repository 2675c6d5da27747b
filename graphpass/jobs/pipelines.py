"""Selection of the passes of a conversion."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graphpass.engine.passes import Pass
    from graphpass.engine.target import Target
    from graphpass.ir.model import Model


def pipeline_for(target: Target, model: Model) -> tuple[Pass[Any], ...]:
    """Return the pipeline of ``target``, with the passes before it that every target needs.

    - Local functions are inlined, ports are named, and operators without a kernel on the CPU are lowered, as in
      comparisons.
    - Identities between caches and their updates are removed, and Ifs of a known branch.
    - Inputs of fixed size that no runtime feeds become constants.
    - Selects that replace the attention output of padding by zeros are removed, because they read the mask.

    Args:
        target: The target of the conversion.
        model: The input, on which targets select their passes; it is not modified.

    Raises:
        UnsupportedError: GP328, the model does not read its states; GP329, it fixes the number of new tokens; GP332, it
            runs single tokens only, and declares any number.
    """
    from graphpass.engine.manager import PassManager
    from graphpass.verify.session_forms import passes_for_sessions

    _require_states(model)
    _require_steps(model)
    chosen: tuple[Pass[Any], ...] = ()
    for choose in (passes_for_sessions, _forms, _idle):
        passes = choose(model)
        model = PassManager(passes).run(model).model if passes else model
        chosen += passes
    return (*chosen, *target.pipeline(model))


def _require_states(model: Model) -> None:
    from graphpass.analysis.caches.unread import unread_states
    from graphpass.errors import UnsupportedError

    if unread := unread_states(model):
        more = f" and {len(unread) - 1} more" if len(unread) > 1 else ""
        message = f"no operator reads the states {unread[0]}{more}, so each step computes a prompt of its own"
        hint = "export the model with a tool whose graphs continue the states, such as optimum-intel"
        raise UnsupportedError("GP328", message, hint)


def _require_steps(model: Model) -> None:
    from graphpass.analysis.caches.fixed_step import fixed_past, fixed_step, single_token
    from graphpass.errors import UnsupportedError

    message = None
    if (size := fixed_step(model)) is not None:
        message = f"each step has exactly {size} tokens, so the model cannot run other prompts and single tokens"
    elif (size := fixed_past(model)) is not None:
        message = f"each step follows exactly {size} positions, so the model cannot run two steps in turn"
    if message is not None:
        hint = "export it with dynamic shapes, for example dynamic=True of transformers' OnnxConfig, or dynamic_axes"
        raise UnsupportedError("GP329", message, hint)
    if (node := single_token(model)) is not None:
        message = f"{node.called} removes the axis of new tokens, so the model runs single tokens only, and no prompts"
        hint = (
            "export it for several tokens; for a runtime that feeds one token at a time, declare the length of the "
            "model's inputs as 1"
        )
        raise UnsupportedError("GP332", message, hint)


def _forms(model: Model) -> tuple[Pass[Any], ...]:
    """Return passes that rewrite the forms in ``model`` that analyses do not support."""
    from graphpass.dialects.onnx.model import OnnxModel
    from graphpass.passes.caches.counted_slots import find_counted_slots
    from graphpass.passes.caches.grow_caches import GrowCaches, written_in_place
    from graphpass.passes.convert.drop_identities import DropIdentities, copies
    from graphpass.passes.convert.fold_branches import FoldBranches, decided_branches
    from graphpass.passes.shapes.canonicalize_shapes import CanonicalizeShapes, counted, expanded

    taken: tuple[Pass[Any], ...] = (DropIdentities(),) if any(True for _ in copies(model.graph)) else ()
    taken += (FoldBranches(),) if any(True for _ in decided_branches(model)) else ()
    if find_counted_slots(model) is not None:
        # Guards read the masks over slots, which the pass replaces.
        return (*taken, *_guards(model), GrowCaches())
    if isinstance(model, OnnxModel):
        return (*taken, GrowCaches()) if written_in_place(model) else taken
    is_odd = any(True for find in (expanded, counted) for _ in find(model.graph))
    return (*taken, CanonicalizeShapes()) if is_odd else taken


def _idle(model: Model) -> tuple[Pass[Any], ...]:
    """Return passes that remove inputs without use, constant outputs and guards of padding."""
    from graphpass.analysis.caches.step_tokens import unread_outputs
    from graphpass.passes.convert.drop_constant_outputs import DropConstantOutputs
    from graphpass.passes.convert.fix_input import FixInput
    from graphpass.runtime.sessions.inputs import idle_inputs

    constant: tuple[Pass[Any], ...] = (DropConstantOutputs(),) if unread_outputs(model) else ()
    return (*(FixInput(input=name) for name in idle_inputs(model)), *constant, *_guards(model))


def _guards(model: Model) -> tuple[Pass[Any], ...]:
    from graphpass.passes.masks.drop_row_guards import GUARD, DropRowGuards

    return (DropRowGuards(),) if any(True for _ in GUARD.find(model.graph)) else ()
