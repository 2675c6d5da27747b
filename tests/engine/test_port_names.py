"""Ports are named by their use: the names of exports do not matter."""

from __future__ import annotations

import pytest
from support.models import export, exporters, fixtures

import graphpass
from graphpass.engine.port_names import port_names
from graphpass.testing import FAMILIES, tiny_model

CONVENTIONAL = {"input_ids", "attention_mask", "position_ids", "logits"}


def numbered(model: graphpass.Model) -> dict[str, str]:
    """Rename all ports to numbers, and return the former names of those with a convention."""
    nodes = list(model.graph.of_op("Parameter", "Result"))
    names = {node: f"port_{index}" for index, node in enumerate(nodes)}
    former = {name: node.name for node, name in names.items() if node.name in CONVENTIONAL}
    rewriter = model.rewriter()
    rewriter.rename_ports(names)
    rewriter.finish()
    return former


@pytest.mark.parametrize("form", ["onnx", "openvino", "stateful"])
@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_the_ports_of_each_family_are_known(family, form):
    model = tiny_model(family, form)
    assert port_names(model) == {}
    former = numbered(model)
    assert port_names(model) == former


def test_ports_of_an_export_with_grouped_queries_are_known():
    model = graphpass.load(export("llama", "onnx-genai")).clone()
    former = numbered(model)
    assert port_names(model) == former


def test_encoders_keep_their_names():
    model = graphpass.load(exporters("encoders", "bert")).clone()
    numbered(model)
    assert port_names(model) == {}


def test_logits_of_a_decoder_without_caches_are_named():
    """The model is then refused as a decoder, with the advice to export it with a past."""
    model = graphpass.load(export("llama", "ov-nocache")).clone()
    rewriter = model.rewriter()
    rewriter.rename_ports({model.graph.writes["logits"]: "output"})
    rewriter.finish()
    assert port_names(model) == {"output": "logits"}


def test_hidden_states_are_no_logits():
    model = tiny_model("llama")
    rewriter, logits = model.rewriter(), model.graph.writes["logits"]
    hidden = model.graph.producer(logits.source()).inputs[0]
    rewriter.redirect(logits, 0, hidden)
    rewriter.rename_ports({logits: "last_hidden_state"})
    rewriter.finish()
    assert port_names(model) == {}


@pytest.mark.parametrize("variant", ["onnx/decoder_with_past_model.onnx", "onnx/decoder_model.onnx"])
def test_masks_of_cross_attention_keep_their_names(variant):
    assert port_names(graphpass.load(fixtures() / "t5" / variant)) == {}
