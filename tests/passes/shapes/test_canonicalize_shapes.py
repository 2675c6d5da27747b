"""canonicalize-shapes: what OpenVINO's frontend for torch.export writes, as others write it."""

import pytest
from support.models import exporters

import graphpass
from graphpass.analysis.attention.assigned_slices import assigned_slice
from graphpass.io import load
from graphpass.passes.shapes.canonicalize_shapes import CanonicalizeShapes, counted, expanded
from graphpass.testing import parse_model, run
from graphpass.verify import compare
from graphpass.verify.structure.proof import compare_structures

#: Family: what the pass counts.
COUNTS = {
    "llama": {"expansions": 5, "ranges counted in integers": 3},
    "gpt_oss": {"expansions": 16, "ranges counted in integers": 4},
    "kimi_linear": {
        "expansions": 12,
        "ranges counted in integers": 3,
        "assigned slices joined": 2,
        "caches with open sizes": 2,
    },
}


@pytest.mark.parametrize("family", COUNTS)
def test_exports_of_torch_export_compute_the_same(family):
    source = load(exporters("transformers-ov", family))
    result = graphpass.PassManager((CanonicalizeShapes(),)).run(source)
    graph = result.model.graph
    assert result.records[-1].result.statistics == COUNTS[family]
    assert not [*expanded(graph), *counted(graph)]
    assert not any(assigned_slice(graph, node) for node in graph.nodes)
    structure = compare_structures(source, result.model, None)
    assert structure.equal == structure.operators
    assert compare(source, result.model, steps=3).passed
    again = graphpass.PassManager((CanonicalizeShapes(),)).run(result.model)
    assert again.records[-1].result.statistics == {}


def test_sizes_fixed_by_the_graph_are_declared():
    source = load(exporters("transformers-ov", "kimi_linear"))
    name = "past_key_values.layers.0.recurrent_states.0"
    assert graphpass.analyze_caches(source).cache(name).shape == (None, 4, 16, 16)
    assert source.graph.parameters[name].shape == (None, None, None, None)
    result = graphpass.PassManager((CanonicalizeShapes(),)).run(source).model
    assert result.graph.parameters[name].shape == (None, 4, 16, 16)


def test_the_size_of_embeddings_is_declared():
    text = """
        %inputs_embeds = Parameter : f32[batch, length, size]
        %y = MatMul(%inputs_embeds, [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
        Result(%y) {name=y}
    """
    result = run(parse_model(text, "openvino"), "canonicalize-shapes")
    assert result.graph.parameters["inputs_embeds"].shape == (None, None, 3)
