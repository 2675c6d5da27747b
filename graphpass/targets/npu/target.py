"""Define the target `npu`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from graphpass.engine.passes import Pass
from graphpass.errors import UnsupportedError
from graphpass.ir.model import Model
from graphpass.targets.npu import rules, trial, view
from graphpass.targets.npu.names import EDITING_INPUTS, GO_BACK, START_AGAIN
from graphpass.targets.stateful import StatefulTarget


@dataclass(frozen=True)
class NPU(StatefulTarget):
    """OpenVINO's NPU plugin with NPUW, which makes prefill and decode models of static shapes.

    It knows variables by optimum's names alone, and takes no inputs but ids or embeddings, mask and positions.

    Options:
        cache: ``beam`` alone; sessions (`graphpass.runtime.open_session`) go back all the same.
    """

    name = "npu"
    description = "OpenVINO on NPU: models that NPUW accepts and computes correctly"
    no_reorder = ("NPUW takes no inputs that move slots of caches", f"leave out cache=reorder; {GO_BACK}")
    feeds_positions = True
    before_attention = ("mask-padding", "densify-experts")
    after_stateful = ("read-length-from-keys", "lower-boolean-masks", "reshape-results", "rename-variables")
    # They cost nothing in static shapes, and NPUW cuts models at routers and experts, which it finds by form and name.
    # Without a Reshape to the same shape after the experts it refuses afmoe, and without a Slice of the whole before a
    # ScatterElementsUpdate it reads wrong choices in phimoe (2026.4.1; not if both of its hints NPUW_LLM_.._MOE_HINT
    # are DENSE).
    drops_identities = False
    predict = staticmethod(rules.predict)
    observe = staticmethod(trial.observe)
    view = staticmethod(view.view)

    def pipeline(self, model: Model) -> tuple[Pass[Any], ...]:
        """See `Target.pipeline`.

        Raises:
            UsageError: GP224, slots are to be movable.
            UnsupportedError: GP367 as of other targets; GP369 the model has inputs that edit caches.
        """
        if edits := sorted({port.name for port in model.inputs} & EDITING_INPUTS):
            raise UnsupportedError(
                "GP369",
                f"NPUW treats the input {edits[0]} as a cache, as every input that it does not know",
                f"take the model without it; {START_AGAIN if 'steps_back' in edits else GO_BACK}",
            )
        return super().pipeline(model)
