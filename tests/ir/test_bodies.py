"""Models whose work is done in bodies: the same answers as of the same work outside."""

from __future__ import annotations

import dataclasses

import numpy
import onnx
import openvino
import pytest
from onnx import TensorProto, helper, numpy_helper
from support.cache_graphs import Renaming, TinyDecoder, renamed, shuffled
from support.models import export

import graphpass
from graphpass.dialects.onnx.model import OnnxModel
from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.ir.bodies import inlined
from graphpass.ir.cache import Axes

KV = Axes(batch=0, heads=1, sequence=2, head_dim=3)


def plain(inventory: graphpass.Inventory) -> set[graphpass.Cache]:
    """The caches without symbols and evidence."""
    return {
        dataclasses.replace(
            cache, shape=tuple(size if isinstance(size, int) else None for size in cache.shape or ()), evidence=()
        )
        for cache in inventory.caches
    }


@pytest.mark.parametrize("name", ["t5", "whisper"])
class TestMergedDecoder:
    def test_the_inventory_equals_the_decoder_with_past(self, name):
        merged, alone = (
            graphpass.analyze_caches(graphpass.load(export(name, "onnx") / file))
            for file in ("decoder_model_merged.onnx", "decoder_with_past_model.onnx")
        )
        assert plain(merged) == plain(alone)
        assert len(merged.caches) == 8
        assert (merged.unpaired_inputs, merged.unpaired_outputs) == ((), ())

    def test_the_inventory_is_the_same_in_openvino(self, name):
        folder = export(name, "onnx")
        native = openvino.Core().read_model(folder / "decoder_model_merged.onnx")
        alone = graphpass.analyze_caches(graphpass.load(folder / "decoder_with_past_model.onnx"))
        assert plain(graphpass.analyze_caches(OpenVINOModel(native))) == plain(alone)

    def test_names_do_not_matter(self, name):
        model = graphpass.load(export(name, "onnx") / "decoder_model_merged.onnx")
        rename = Renaming(5)
        found = graphpass.analyze_caches(shuffled(renamed(model, rename), 3))
        wanted = graphpass.analyze_caches(model)
        assert {(rename(c.name), c.kind, c.role, c.layer) for c in wanted.caches} == {
            (c.name, c.kind, c.role, c.layer) for c in found.caches
        }

    def test_attention_of_both_branches_is_found(self, name):
        blocks = graphpass.analyze_caches(graphpass.load(export(name, "onnx") / "decoder_model_merged.onnx")).attention
        assert len(blocks) == 8
        assert sum(block.key is None for block in blocks) == 4


def test_cross_attention_inside_an_operator():
    inventory = graphpass.analyze_caches(graphpass.load(export("whisper", "onnx-genai") / "decoder.onnx"))
    assert [
        (cache.name, cache.kind, cache.role, cache.layer, cache.axes, cache.write) for cache in inventory.caches
    ] == [
        row
        for layer in (0, 1)
        for row in (
            (f"past_key_self_{layer}", "kv", "key", layer, KV, f"present_key_self_{layer}"),
            (f"past_value_self_{layer}", "kv", "value", layer, KV, f"present_value_self_{layer}"),
            (f"past_key_cross_{layer}", "cross", "cross_key", layer, KV, None),
            (f"past_value_cross_{layer}", "cross", "cross_value", layer, KV, None),
        )
    ]
    assert inventory.caches[2].evidence[1].startswith("read as the key of MultiHeadAttention ")


def model_with_nested_branches(depth: int) -> OnnxModel:
    """A growing cache within ``depth`` branches: ``present = [past, new]`` where ``flag``, else ``new``."""
    kind = helper.make_tensor_type_proto(TensorProto.FLOAT, ["B", "?", 4])
    body = helper.make_graph(
        [helper.make_node("Concat", ["past", "new"], ["whole_0"], axis=1)],
        "then_0",
        [],
        [helper.make_value_info("whole_0", kind)],
    )
    for level in range(1, depth + 1):
        other = helper.make_graph(
            [helper.make_node("Identity", ["new"], [f"alone_{level}"])],
            f"else_{level}",
            [],
            [helper.make_value_info(f"alone_{level}", kind)],
        )
        branch = helper.make_node("If", ["flag"], [f"whole_{level}"], then_branch=body, else_branch=other)
        body = helper.make_graph([branch], f"then_{level}", [], [helper.make_value_info(f"whole_{level}", kind)])
    inputs = [
        helper.make_tensor_value_info("flag", TensorProto.BOOL, []),
        helper.make_tensor_value_info("ids", TensorProto.INT64, ["B", "N"]),
        helper.make_tensor_value_info("past", TensorProto.FLOAT, ["B", "P", 4]),
    ]
    table = numpy_helper.from_array(numpy.ones((5, 4), numpy.float32), "table")
    embed = helper.make_node("Gather", ["table", "ids"], ["new"])
    graph = helper.make_graph([embed, *body.node], "main", inputs, list(body.output), [table])
    return OnnxModel(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10))


class TestInlining:
    def test_a_model_without_branches_is_itself(self):
        model = TinyDecoder(layers=1).build()
        assert inlined(model) is model

    def test_the_view_cannot_be_cloned(self):
        view = inlined(graphpass.load(export("t5", "onnx") / "decoder_model_merged.onnx"))
        with pytest.raises(TypeError, match="read-only"):
            view.clone()

    @pytest.mark.parametrize("depth", [1, 2, 20])
    def test_a_cache_in_nested_branches_is_found(self, depth):
        model = model_with_nested_branches(depth)
        onnx.checker.check_model(model.proto, full_check=True)
        (cache,) = graphpass.analyze_caches(model).caches
        assert (cache.kind, cache.axes.sequence) == ("unknown", 1)
        assert cache.evidence[0].startswith("appended along axis 1 by Concat ")

    def test_the_view_computes_the_same(self):
        """Both branches, in ONNX Runtime: what is called the sequence axis grows."""
        import onnxruntime

        session = onnxruntime.InferenceSession(model_with_nested_branches(2).proto.SerializeToString())
        past, ids = numpy.zeros((2, 3, 4), numpy.float32), numpy.zeros((2, 1), numpy.int64)
        for flag, length in ((True, 4), (False, 1)):
            (present,) = session.run(None, {"flag": numpy.array(flag), "past": past, "ids": ids})
            assert present.shape == (2, length, 4)
