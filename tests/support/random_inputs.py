"""What exports are fed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy

if TYPE_CHECKING:
    from graphpass.dialects.openvino.model import OpenVINOModel


def random_inputs(
    model: OpenVINOModel, *, length: int, past: int, batch: int = 2, padding: int = 1
) -> dict[str, numpy.ndarray]:
    """Random inputs for a step behind a past, the first sequence padded on the left."""
    random = numpy.random.default_rng(0)
    arrays: dict[str, numpy.ndarray] = {}
    for port in model.ov_model.inputs:
        name, dtype = port.get_any_name(), port.get_element_type().to_dtype()
        dims = [dim.get_length() if dim.is_static else None for dim in port.get_partial_shape()]
        if name == "attention_mask":
            arrays[name] = numpy.ones([batch, past + length], dtype)
            arrays[name][0, :padding] = 0
        elif name == "encoder_attention_mask":
            arrays[name] = numpy.ones([batch, 7], dtype)
            arrays[name][1, 5:] = 0
        elif name == "position_ids":
            arrays[name] = numpy.tile(numpy.arange(past, past + length), (batch, 1)).astype(dtype)
        elif "input_ids" in name:
            arrays[name] = random.integers(0, 320, [batch, length]).astype(dtype)
        else:
            longest = past if "past" in name and ".encoder." not in name else 7
            sizes = [batch, *((longest if dim is None else dim) for dim in dims[1:])]
            arrays[name] = random.standard_normal(sizes).astype(dtype)
    return arrays
