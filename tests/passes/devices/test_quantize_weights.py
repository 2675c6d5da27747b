"""The pass `quantize-weights`: products in 4 bits, and faults that verification finds."""

from __future__ import annotations

import numpy
import pytest
from support.commands import in_process
from support.loaded import converted, exported, run_once
from support.models import export, exporters

import graphpass
from graphpass.dialects.onnx.four_bits import FourBits
from graphpass.errors import UnsupportedError
from graphpass.io import load


def test_weights_are_rounded_in_blocks_of_inputs():
    weight = numpy.random.default_rng(0).standard_normal((70, 9), numpy.float32)
    made = FourBits.of(weight)
    assert made.packed.shape == (9, 3, 16)
    blocks = [weight[start : start + 32] for start in (0, 32, 64)]
    steps = [(block.max(0).clip(0) - block.min(0).clip(max=0)) / 15 for block in blocks]
    off = numpy.abs(made.widened() - weight)
    assert all((off[32 * place : 32 * place + 32] <= 1.01 * step).all() for place, step in enumerate(steps))
    assert off.max() > 0.01


def rounded(model, target="web{dtype=q4}"):
    return converted(model, target).model


def test_products_of_computed_tensors_and_gemm_stay():
    with pytest.raises(UnsupportedError, match="GP385"):
        run_once(rounded(exported("llama/onnx")), "quantize-weights")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gpt2/onnx", "mistral_sw8/onnx", "lfm2/onnx-genai", "llama/onnx-fp16", "gemma2/onnx"])
@pytest.mark.parametrize("dtype", ["q4", "q4f16"])
def test_families_are_quantized_and_verified(name, dtype, tmp_path, capfd):
    source = export(*name.split("/"))
    done = in_process(capfd, "convert", source, "-o", tmp_path / "out", "--target", f"web{{dtype={dtype}}}")
    assert done.code == 0, done.err
    assert "weights to 4 bits: the reference runs with the same rounding" in done.out
    assert (tmp_path / "out" / "onnx" / f"model_{dtype}.onnx").is_file()


@pytest.mark.slow
def test_joined_projections_and_transposed_weights():
    model = load(exporters("mobius", "llama"))
    assert graphpass.verify(model, rounded(model), steps=2).passed
