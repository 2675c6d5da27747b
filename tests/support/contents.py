"""Caches as arrays, edited by numpy: what any move of slots must do to them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import openvino

from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.engine.manager import PassManager
from graphpass.io import load
from graphpass.passes.caches.make_stateless import MakeStateless
from support.decode import EXACT, Decoder
from support.models import export, fixtures

#: Where optimum's exports have the sequence in a cache.
_SEQUENCE = 2


class Contents:
    """A stateless model, and the contents of its caches, one slot a position."""

    def __init__(self, compiled: openvino.CompiledModel) -> None:
        self._decoder = Decoder(compiled.create_infer_request())

    @property
    def length(self) -> int:
        return int(self._decoder.mask.shape[1])

    def step(self, ids: Sequence[Sequence[int]]) -> np.ndarray:
        """The last position's logits, ``[batch, vocabulary]``."""
        return self._decoder.step(np.array(ids))

    def rewind(self, length: int) -> None:
        self._decoder.mask = self._decoder.mask[:, :length]
        self._edit(np.arange(length))

    def reorder(self, src: Sequence[int], dst: Sequence[int]) -> None:
        slots = np.arange(self.length)
        slots[list(dst)] = src
        self._edit(slots)

    def _edit(self, slots: np.ndarray) -> None:
        pasts = self._decoder.pasts
        pasts.update({name: past.take(slots, _SEQUENCE) for name, past in pasts.items()})


def compiled(name: str) -> openvino.CompiledModel:
    """The stateless form of a fixture on the CPU plugin, in f32."""
    return openvino.Core().compile_model(_stateless(name), "CPU", EXACT)


def _stateless(name: str) -> openvino.Model:
    files = [fixtures() / name / "ov-stateless" / "openvino_model.xml", fixtures() / name / "onnx" / "model.onnx"]
    for file in files:
        if file.exists():
            return openvino.Core().read_model(str(file))
    model = PassManager([MakeStateless()]).run(load(export(name, "ov-stateful"))).model
    assert isinstance(model, OpenVINOModel)
    return model.ov_model
