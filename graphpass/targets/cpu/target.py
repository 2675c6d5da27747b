"""The target `cpu`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from graphpass.targets.cpu import rules, trial
from graphpass.targets.stateful import StatefulTarget


@dataclass(frozen=True)
class CPU(StatefulTarget):
    """OpenVINO's CPU plugin, and openvino.genai on the CPU.

    The plugin fuses the attention of the result into a stateful kernel.

    Options:
        cache: With ``reorder``, the inputs ``src_idx`` and ``dst_idx`` move slots of caches, and a shorter mask trims
            them; the plugin does not fuse this form.
        logits: With ``last``, only the logits of each row's last token are computed; see `last-logits`.
    """

    name = "cpu"
    description = "OpenVINO on CPU: stateful, with attention fused; with cache=beam for openvino.genai"
    seq2seq = True
    encoders = True
    copies_shared = True
    expands_latents = True
    hides_positions = True
    predict = staticmethod(rules.predict)
    observe = staticmethod(trial.observe)

    logits: Literal["all", "last"] = "all"

    @property
    def cuts_logits(self) -> bool:
        return self.logits == "last"
