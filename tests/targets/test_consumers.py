"""Models that others misread, and why."""

import dataclasses

import pytest
from support.cache_graphs import Renaming, TinyDecoder, renamed
from support.loaded import onnx_model, openvino_model
from targets.consumers.views import view

import graphpass
from graphpass.targets.consumers import view_caches


@pytest.mark.parametrize(
    ("model", "consumers"),
    [
        (onnx_model, ["optimum-intel", "ONNX Runtime OpenVINO EP", "onnxruntime-genai"]),
        (openvino_model, ["NPUW"]),
        (lambda name: openvino_model(name, "ov-stateless"), ["optimum-intel"]),
    ],
    ids=["onnx", "ov-stateful", "ov-stateless"],
)
def test_unknown_names_are_not_found(model, consumers):
    anonymous = renamed(model("llama"), Renaming(3))
    for consumer in consumers:
        found = view(anonymous, consumer)
        assert found.verdict == "misreads", consumer
        assert {one.sees for one in found.caches} == {"nothing"}


def test_a_cache_of_unknown_kind_is_a_disagreement():
    model = TinyDecoder(layers=1).build()
    inventory = graphpass.analyze_caches(model)
    unknown = dataclasses.replace(inventory.caches[0], kind="unknown", evidence=("read by nobody",))
    doubtful = dataclasses.replace(inventory, caches=(unknown, *inventory.caches[1:]))
    found = next(one for one in view_caches(model, doubtful) if one.consumer == "optimum-intel")
    assert found.verdict == "cannot tell"
    assert unknown.name in found.reasons[0]
