"""The target `gpu`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from graphpass.targets.gpu import rules, trial
from graphpass.targets.stateful import StatefulTarget


@dataclass(frozen=True)
class GPU(StatefulTarget):
    """OpenVINO's GPU plugin, and openvino.genai on the GPU.

    Options:
        cache: With ``beam``, ``beam_idx`` reorders caches, which the plugin fuses into a beam table. With ``reorder``,
            ``src_idx`` and ``dst_idx`` move slots, and a shorter mask trims them, as speculative decoding requires.
        trim: Form of the trim with ``cache=reorder``. ``slice``: a Slice, which versions of the plugin after 2026.4.1
            fuse. ``begin-one``: the form that 2026.4.1 fuses; it is wrong on all other devices and versions, which the
            model's metadata records. ``installed``: the form that the installed plugin fuses, verified on the GPU or in
            the environment that ``GRAPHPASS_GPU_ENVIRONMENT`` names; a Slice if there is neither.
        logits: With ``last``, only the logits of each row's last token are computed; see `last-logits`.
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
