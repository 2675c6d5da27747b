"""onnxruntime-genai finds caches by templates of names."""

import pytest
from support.loaded import onnx_model, run_once
from targets.consumers.views import view, views_of

from graphpass.targets.consumers.ort_genai import template_of

CONSUMER = "onnxruntime-genai"


@pytest.mark.parametrize(
    ("name", "template"),
    [
        ("past_key_values.11.key", "past_key_values.%d.key"),
        ("past_conv.3", "past_conv.%d"),
        ("layer2.head3", "layer%d.head3"),
        ("past", "past"),
    ],
)
def test_the_first_number_is_the_layer_s(name, template):
    assert template_of(name) == template


def test_default_names_need_no_setting():
    found = view(onnx_model("llama"), CONSUMER)
    assert (found.verdict, found.reasons) == ("agrees", ())


def test_other_templates_need_a_setting():
    model = onnx_model("llama")
    for node in (*model.proto.graph.node, model.proto.graph):
        for ports in (node.input, node.output):
            for place, port in enumerate(ports):
                name = port if isinstance(port, str) else port.name
                for old, new in (("past_key_values", "cache"), ("present", "next")):
                    name = name.replace(old, new)
                if isinstance(port, str):
                    ports[place] = name
                else:
                    port.name = name
    model.mark_edited()
    found = view(model, CONSUMER)
    assert found.verdict != "misreads"
    assert 'needs past_key_names = "cache.%d.key" in genai_config.json' in found.reasons
    assert {one.sees for one in found.caches} == {"kv"}


def test_other_layouts_are_fed_in_a_wrong_shape():
    found = view(run_once(onnx_model("llama"), "standardize-layout{to=BSHD}").model, CONSUMER)
    assert found.verdict == "misreads"
    assert found.reasons[0].endswith("as [batch, heads, sequence, head_dim], which is not its layout")


def test_other_dialects_are_not_read():
    converted = run_once(onnx_model("llama"), "to-openvino").model
    assert view(converted, CONSUMER).verdict not in {"agrees", "misreads"}


@pytest.mark.parametrize("name", ["llama", "llama_12l", "qwen3", "lfm2"])
def test_onnxruntime_genai_reads_exports_of_its_builder(name):
    assert views_of(f"{name}/onnx-genai/model.onnx")[2]["onnxruntime-genai"].verdict == "agrees"


def test_onnxruntime_genai_needs_other_names_in_its_configuration():
    view = views_of("whisper/onnx-genai/decoder.onnx")[2]["onnxruntime-genai"]
    assert view.verdict == "cannot tell"
    # As genai_config.json beside that model has it.
    assert 'needs past_key_names = "past_key_self_%d" in genai_config.json' in view.reasons
    assert 'needs cross_past_value_names = "past_value_cross_%d" in genai_config.json' in view.reasons
