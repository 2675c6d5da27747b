"""Define the target `gpu`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from graphpass.targets.gpu import rules, trial
from graphpass.targets.stateful import StatefulTarget


@dataclass(frozen=True)
class GPU(StatefulTarget):
    """OpenVINO's GPU plugin, and openvino.genai on it.

    Options:
        cache: With ``beam`` caches are read through ``beam_idx``, which the plugin turns into a table of beams; with
            ``reorder`` through ``src_idx`` and ``dst_idx``, with which speculative decoding moves and cuts slots. Never
            through both.
        trim: Cut of ``reorder``: a Slice, which versions of the plugin after 2026.4.1 fuse, or with ``begin-one``
            as 2026.4.1 does; that is wrong on all other devices and versions, and is marked so in the model. With
            ``installed`` the one that is fused here, proven on the GPU, or in an environment that
            ``GRAPHPASS_GPU_ENVIRONMENT`` names; a Slice if there is neither.
        logits: With ``last`` those of the last token of each row, see `last-logits`.
    """

    name = "gpu"
    description = "OpenVINO on GPU: stateful, caches in the plugin's own kernel; with cache=beam for openvino.genai"
    seq2seq = True
    encoders = True
    hides_positions = True
    takes_begin_one = True
    after_stateful = ("lower-variadic-split", "lower-boolean-gathers", "reshape-by-constants{unknown=true}")
    predict = staticmethod(rules.predict)
    observe = staticmethod(trial.observe)

    trim: Literal["installed", "slice", "begin-one"] = "installed"
    logits: Literal["all", "last"] = "all"

    @property
    def cuts_logits(self) -> bool:
        return self.logits == "last"

    def __post_init__(self) -> None:
        if self.trim != "installed" and self.cache != "reorder":
            raise ValueError("trim needs cache=reorder")

    @property
    def insert_reorder(self) -> str:
        return "insert-reorder{trim=begin-one}" if self._begins_at_one else "insert-reorder"

    @property
    def made_for(self) -> str | None:
        return f"GPU plugin of OpenVINO {trial.BEGINS_AT_ONE}" if self._begins_at_one else None

    @property
    def proving_device(self) -> str:
        return "GPU" if self._begins_at_one else "CPU"

    @property
    def _begins_at_one(self) -> bool:
        if self.cache != "reorder" or self.trim != "installed":
            return self.trim == "begin-one"
        return trial.plugin_version() == trial.BEGINS_AT_ONE
