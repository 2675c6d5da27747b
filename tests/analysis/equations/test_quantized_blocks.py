"""Weights in blocks of inputs: bits, size and rounding of both operators, and refusals."""

import pytest

from graphpass.analysis.equations.quantized_blocks import dequantized_blocks, packed_blocks
from graphpass.ir.miss import MissError
from graphpass.testing import parse_model

PACKED = """%x = Parameter : f32[n, 64]
%w = Constant : u8[8, 2, 16]
%s = Constant : f32[16]
%z = Constant : u8[8]
%g = Constant : i32[64]
%y = com.microsoft.MatMulNBits(%x, %w, %s) {N=8, K=64, block_size=32, bits=4} : f32[n, 8]
"""
DEQUANTIZED = """%w = Constant : {type}[8, {inputs}]
%s = Constant : f32[8, {blocks}]
%y = DequantizeLinear(%w, %s) {{axis={axis}, block_size={size}}}
"""


def node_of(text):
    graph = parse_model(f"{text}Result(%y) {{name=result}}").graph
    return graph, graph.producer(graph.writes["result"].source())


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("", "", (4, 32, False, None)),
        ("bits=4", "bits=4, accuracy_level=4", (4, 32, True, None)),
        ("bits=4", "bits=4, accuracy_level=1", (4, 32, False, None)),
        ("%s)", "%s, %z)", (4, 32, False, "z")),
    ],
)
def test_matmulnbits(old, new, expected):
    blocks = packed_blocks(*node_of(PACKED.replace(old, new)))
    assert (blocks.bits, blocks.size, blocks.rounds, blocks.zeros and blocks.zeros.name) == expected
    assert blocks.is_packed


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("bits=4", "bits=2", "has 2 bits"),
        ("%s)", "%s, _, %g)", "has input g_idx"),
        ("%z = Constant : u8[8]", "%z = Constant : f32[16]", "zero points of type u8, got f32"),
        ("block_size=32", "block_size=128", "blocks of 128"),
        ("%s = Constant", "%s = Parameter", "are computed"),
    ],
)
def test_other_weights_of_matmulnbits_are_refused(old, new, reason):
    text = PACKED.replace("%s)", "%s, %z)") if "zero points" in reason else PACKED
    with pytest.raises(MissError, match=reason):
        packed_blocks(*node_of(text.replace(old, new)))


@pytest.mark.parametrize(("kind", "bits"), [("i4", 4), ("u4", 4), ("i8", 8), ("u8", 8)])
def test_dequantizelinear(kind, bits):
    blocks = dequantized_blocks(*node_of(DEQUANTIZED.format(type=kind, inputs=64, blocks=4, axis=1, size=16)), -1)
    assert (blocks.bits, blocks.size, blocks.is_packed, blocks.form) == (bits, 16, False, (bits, 16, "f32"))


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"type": "i32", "blocks": 4, "axis": 1, "size": 16}, "got i32"),
        ({"type": "u8", "blocks": 64, "axis": 0, "size": 8}, "along the axis of inputs"),
        ({"type": "u8", "blocks": 8, "axis": 1, "size": 8}, "at least 16"),
        ({"type": "u8", "inputs": 48, "blocks": 2, "axis": 1, "size": 24}, "not a power of 2"),
    ],
)
def test_other_blocks_are_refused(given, reason):
    with pytest.raises(MissError, match=reason):
        dequantized_blocks(*node_of(DEQUANTIZED.format(**{"inputs": 64} | given)), -1)
