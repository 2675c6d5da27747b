"""Heads on hidden states: onnxruntime-genai drafts with them and generates the tokens of the model alone."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy
import onnxruntime_genai
from onnx import TensorProto, helper
from support.cache_graphs import renamed
from support.commands import in_process
from support.loaded import exported
from support.models import export, reference

import graphpass
from graphpass.engine.pipeline import parse
from graphpass.ir.model import Model
from graphpass.targets import check_model
from graphpass.targets.ort.genai_states import state_entries, why_no_mtp

LLAMA = exported("llama/onnx")


def with_f16_logits(model: Model) -> Model:
    """A copy whose logits are f16, as in exports of onnxruntime-genai's builder in f16."""
    copy = renamed(model, lambda name: "logits_f32" if name == "logits" else name)
    graph = copy.proto.graph
    port = next(port for port in graph.output if port.name == "logits_f32")
    graph.node.append(helper.make_node("Cast", ["logits_f32"], ["logits"], to=TensorProto.FLOAT16))
    port.name, port.type.tensor_type.elem_type = "logits", TensorProto.FLOAT16
    copy.mark_edited()
    return copy


def exposed(layers: str = "[-1]") -> Model:
    passes = parse(f"expose-hidden-states{{layers={layers}}}")
    return graphpass.PassManager(passes).run(LLAMA).model


def head() -> Model:
    """A llama that adds states of the target to its embeddings, and returns its own states."""
    (name,) = [port.name for port in exposed().outputs if port.name.startswith("hidden_states.")]
    model = renamed(exposed(), lambda old: "hidden_states_out" if old == name else old)
    rewriter, graph = model.rewriter(), model.graph
    lookup = next(node for node in graph.of_op("Gather") if node.input(1) is graph.parameters["input_ids"])
    states = rewriter.input("hidden_states", "f32", [None, None, 64])
    rewriter.redirect_uses(lookup.outputs[0], rewriter.under("head").op("Add", lookup.outputs[0], states))
    rewriter.finish()
    return model


def folder_of(model: Model, folder: Path, capfd: Any) -> Path:
    source = folder / "in"
    graphpass.save(model, source / "model.onnx")
    shutil.copyfile(export("llama", "onnx") / "config.json", source / "config.json")
    done = in_process(capfd, "convert", source, "-o", folder / "out", "--target", "ort-genai")
    assert done.code == 0, done.err
    return folder / "out"


def test_a_head_drafts_for_a_model_that_returns_states(capfd, tmp_path):
    wanted = reference("llama")
    main = folder_of(with_f16_logits(exposed()), tmp_path / "main", capfd)
    draft = folder_of(with_f16_logits(head()), tmp_path / "head", capfd)
    models = [onnxruntime_genai.Model(str(folder)) for folder in (main, draft)]
    options = onnxruntime_genai.GeneratorParams(models[0])
    options.set_search_options(max_length=len(wanted["prompt_ids"]) + len(wanted["greedy_ids"]), do_sample=False)
    options.set_speculative_options(max_draft_tokens=2)
    generator = onnxruntime_genai.MtpGenerator(*models, options)
    generator.append_tokens(numpy.array(wanted["prompt_ids"], numpy.int32))
    while not generator.is_done():
        generator.generate_next_token()
    found = [int(token) for token in generator.get_sequence()][len(wanted["prompt_ids"]) :]
    assert found == list(wanted["greedy_ids"])[: len(found)]
    assert len(found) > 2
    config = json.loads((main / "genai_config.json").read_text())["model"]
    assert config["mtp"] == {"main_hidden_states": config["decoder"]["outputs"]["hidden_states"]}


def test_entries_name_states():
    assert state_entries(LLAMA) == ({}, {}, {})
    size, outputs, model = state_entries(exposed())
    assert size == {"hidden_size": 64}
    assert model == {"mtp": {"main_hidden_states": outputs["hidden_states"]}}
    assert state_entries(head()) == ({"hidden_size": 64}, {"hidden_states": "hidden_states_out"}, {})
    # MtpGenerator reads one tensor of states.
    assert state_entries(exposed("[0,1]")) == ({}, {}, {})


def test_logits_in_f32_are_predicted_not_to_run():
    finding = next(one for one in check_model(exposed(), "ort-genai{context=64}", confirm=False).findings if one.reason)
    assert finding.verdict == "taken"
    assert finding.reason == why_no_mtp(exposed())
    assert "expected f16" in finding.reason
    assert why_no_mtp(with_f16_logits(exposed())) is None
    assert why_no_mtp(LLAMA) is None
