"""The target `npu`."""

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
    """OpenVINO's NPU plugin with NPUW, which creates prefill and decode models of static shapes.

    NPUW recognizes variables only by optimum's names, and feeds only token ids or embeddings, mask and positions.

    Options:
        cache: Always ``beam``; sessions (`graphpass.runtime.open_session`) can rewind nevertheless.
    """

    name = "npu"
    description = "OpenVINO on NPU: models that NPUW accepts and computes correctly"
    no_reorder = ("NPUW does not support inputs that move slots of caches", f"omit cache=reorder; {GO_BACK}")
    feeds_positions = True
    moves_slots = True
    generates = True
    before_attention = ("mask-padding", "densify-experts", "lower-mvn", "widen-dequantization")
    after_stateful = (
        *("split-value-transposes", "read-length-from-keys"),
        *("lower-boolean-masks", "reshape-results", "scatter-visual-features", "rename-variables"),
    )
    # Identities cost no time if static, and NPUW partitions models at routers and experts, which it finds by form
    # and name. On 2026.4.1, without a Reshape to the same shape after the experts it refuses afmoe, and without an
    # identity Slice before a ScatterElementsUpdate it reads wrong experts in phimoe, unless both NPUW_LLM_.._MOE_HINT
    # are DENSE.
    drops_identities = False
    exposes_partial_windows = True
    predict = staticmethod(rules.predict)
    observe = staticmethod(trial.observe)
    view = staticmethod(view.view)

    def pipeline(self, model: Model) -> tuple[Pass[Any], ...]:
        """Return the passes, as `Target.pipeline`.

        Raises:
            UsageError: GP224, NPUW does not support ``cache=reorder``.
            UnsupportedError: GP367, the model runs only on one version of OpenVINO's GPU plugin; GP369, the model has
                inputs that edit caches.
        """
        if edits := sorted({port.name for port in model.inputs} & EDITING_INPUTS):
            raise UnsupportedError(
                "GP369",
                f"NPUW treats the input {edits[0]} as a cache, as every input of unknown name",
                f"use the model without it; {START_AGAIN if 'steps_back' in edits else GO_BACK}",
            )
        return super().pipeline(model)
