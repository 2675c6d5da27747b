"""Encoder-decoder folders over raw OpenVINO requests, independent of `graphpass.runtime`: what the tests trust."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy
import openvino

from .decode import compiled
from .models import export, reference


def encoder_input(model: str) -> dict[str, numpy.ndarray]:
    """What PyTorch's encoder was fed for ``reference.json``."""
    if model == "whisper":
        return {"input_features": (numpy.sin(numpy.arange(80 * 3000).reshape(1, 80, 3000) * 0.013) * 0.5).astype("f")}
    ids = numpy.array([reference(model)["prompt_ids"]])
    return {"input_ids": ids, "attention_mask": numpy.ones_like(ids)}


def merged(model: str, folder: Path) -> Path:
    """An ONNX export that holds its decoder as one file alone."""
    unmerged = shutil.ignore_patterns("decoder_model.onnx", "decoder_with_past_model.onnx")
    shutil.copytree(export(model, "onnx"), folder, ignore=unmerged)
    return folder


class Generator:
    """Generates with a folder of `openvino_encoder_model.xml` and a stateful `openvino_decoder_model.xml`."""

    def __init__(self, folder: Path) -> None:
        core = openvino.Core()
        self.encoder, self.decoder = (
            compiled(core.read_model(folder / f"openvino_{name}_model.xml")) for name in ("encoder", "decoder")
        )
        self.request = self.decoder.create_infer_request()
        self.encoder_feeds: dict[str, numpy.ndarray] = {}

    def start(self, feeds: dict[str, numpy.ndarray], copies: int = 1) -> None:
        """Reset, and encode ``feeds``, each row several times."""
        hidden = self.encoder(feeds)["last_hidden_state"].repeat(copies, 0)
        self.encoder_feeds = {"encoder_hidden_states": hidden}
        if "attention_mask" in feeds:
            self.encoder_feeds["encoder_attention_mask"] = feeds["attention_mask"].repeat(copies, 0)
        self.request.reset_state()

    def step(self, ids: Any, beams: list[int] | None = None) -> numpy.ndarray:
        """Feed tokens ``[batch, length]``; returns the last position's logits."""
        ids = numpy.array(ids)
        order = list(range(len(ids))) if beams is None else beams
        feeds = self.encoder_feeds | {"input_ids": ids, "beam_idx": numpy.array(order, numpy.int32)}
        return self.request.infer(feeds)["logits"][:, -1].copy()

    def greedy(self, start: int, count: int) -> list[int]:
        """The likeliest tokens behind ``start``."""
        chosen = [start]
        while len(chosen) <= count:
            chosen.append(int(self.step([chosen[-1:]])[0].argmax()))
        return chosen[1:]
