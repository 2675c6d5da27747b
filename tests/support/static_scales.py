"""Models that ONNX Runtime quantizes with static scales, as QDQ."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy
import onnx
from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize_static

from graphpass.model_files import find_model
from support.models import export


class Steps(CalibrationDataReader):
    """Steps of five tokens after a past of three."""

    def __init__(self, model: onnx.ModelProto, seed: int = 0) -> None:
        random = numpy.random.default_rng(seed)
        pasts = [port.name for port in model.graph.input if "past" in port.name]
        self.feeds = [
            {
                "input_ids": random.integers(3, 250, (1, 5)),
                "attention_mask": numpy.ones((1, 8), numpy.int64),
                "position_ids": numpy.arange(3, 8)[None],
                **{name: random.standard_normal((1, 2, 3, 16), numpy.float32) for name in pasts},
            }
        ]

    def get_next(self) -> dict[str, Any] | None:
        return self.feeds.pop() if self.feeds else None


def in_static_int8(
    folder: Path, keeps: Collection[str], rounded_to: QuantType = QuantType.QUInt8, seed: int = 0
) -> Path:
    """Return a file of llama whose products multiply rounded activations, except those named by ``keeps``."""
    source, file = find_model(export("llama", "onnx")), folder / "model.onnx"
    proto = onnx.load(source)
    products = [node.name for node in proto.graph.node if node.op_type == "MatMul"]
    rounded = [name for name in products if not any(part in name for part in keeps)]
    chosen = {"op_types_to_quantize": ["MatMul"], "nodes_to_quantize": rounded}
    # The tool writes beside a file that it reads.
    quantize_static(onnx.load(source), file, Steps(proto, seed), activation_type=rounded_to, **chosen)
    return file
