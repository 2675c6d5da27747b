"""Elements of operators that apply rotary embedding equal those that ONNX Runtime computes."""

import numpy
import pytest
from support.elements import evaluated

from graphpass.analysis.symbolic.rotary import rotary_ports
from graphpass.testing import parse_model

RANDOM = numpy.random.default_rng(0)
TABLES = {name: RANDOM.standard_normal([9, 2]).astype(numpy.float32) for name in ("cos", "sin")}
IDS = numpy.array([[4, 1, 2], [0, 8, 3]])
SETUP = "%cos = Parameter : f32[9, 2]\n%sin = Parameter : f32[9, 2]\n"


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize(
    ("shape", "ids", "attributes"),
    [
        ((2, 2, 3, 4), IDS, ""),
        ((2, 3, 8), IDS, ""),
        ((2, 3, 12), IDS, ", num_heads=2, rotary_embedding_dim=4"),
        ((2, 2, 3, 4), IDS[0, :1], ""),
    ],
)
def test_onnxruntimes_operator(shape, ids, attributes, interleaved):
    sizes = ", ".join(map(str, shape))
    text = f"{SETUP}%x = Parameter : f32[{sizes}]\n%ids = Parameter : i64[{', '.join(map(str, ids.shape))}]\n"
    text += "%y = com.microsoft.RotaryEmbedding(%x, %ids, %cos, %sin) "
    text += f"{{interleaved={interleaved}{attributes}}} : f32[{sizes}]"
    x = RANDOM.standard_normal(shape).astype(numpy.float32)
    numpy.testing.assert_allclose(*evaluated(text, x=x, ids=ids, **TABLES), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("op", "ports"), [("RotaryEmbedding", (3, 1, 2)), ("Relu", None)])
def test_onnx_has_the_positions_last(op, ports):
    operands = "%x, %cos, %sin, %ids" if ports else "%x"
    text = f"%x = Parameter : f32[2, 2, 3, 4]\n{SETUP}%ids = Parameter : i64[2, 3]\n%y = {op}({operands})"
    graph = parse_model(f"{text}\nResult(%y) {{name=y}}", opset=23).graph
    assert rotary_ports(graph.producer(graph.writes["y"].source())) == ports
