"""Models whose activations are rounded to integers, by ONNX Runtime's own quantizer."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import numpy
import onnx
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

_PROMPTS, _NEW, _PAST = 8, 12, 7

_TYPES = {"u8": (QuantType.QUInt8, QuantType.QInt8), "u16": (QuantType.QUInt16, QuantType.QUInt8)}


class _Prompts(CalibrationDataReader):  # type: ignore[misc]
    """Random prompts, some of them after random caches."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self._feeds = iter([_feeds(model, number) for number in range(_PROMPTS)])

    def get_next(self) -> Mapping[str, numpy.ndarray] | None:
        return next(self._feeds, None)


def _feeds(model: onnx.ModelProto, number: int) -> dict[str, numpy.ndarray]:
    random, past = numpy.random.default_rng(number), _PAST if number > 1 else 0
    feeds = {
        "input_ids": random.integers(3, 90, (1, _NEW)),
        "attention_mask": numpy.ones((1, _NEW + past), numpy.int64),
        "position_ids": numpy.arange(past, past + _NEW)[None],
    }
    for port in model.graph.input:
        if port.name not in feeds:
            heads, size = (port.type.tensor_type.shape.dim[axis].dim_value for axis in (1, 3))
            feeds[port.name] = random.standard_normal((1, heads, past, size)).astype(numpy.float32)
    return feeds


def with_rounded_activations(source: Path, folder: Path, activations: str) -> Path:
    """Write a QDQ form of an export: products of layers and of logits, weights in 8 bits.

    Args:
        source: The export's folder.
        folder: Where to write.
        activations: ``"u8"``, or ``"u16"``, which is com.microsoft's QuantizeLinear.

    Returns:
        ``folder``.
    """
    shutil.copytree(source, folder)
    model = onnx.load(source / "model.onnx")
    kind, weights = _TYPES[activations]
    quantize_static(
        onnx.load(source / "model.onnx"),
        str(folder / "model.onnx"),
        _Prompts(model),
        quant_format=QuantFormat.QDQ,
        activation_type=kind,
        weight_type=weights,
        op_types_to_quantize=["MatMul"],
        nodes_to_exclude=[
            node.name
            for node in model.graph.node
            if not {"layers", "lm_head"} & {part.split(".")[0] for part in node.name.split("/")}
        ],
        extra_options={"UseQDQContribOps": activations == "u16"},
    )
    return folder
