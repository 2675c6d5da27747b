"""Target `ort-genai`: onnxruntime-genai opens its folders and generates the tokens of the export."""

from __future__ import annotations

import json
from pathlib import Path

import numpy
import onnxruntime_genai
import pytest
from support.cache_graphs import renamed
from support.commands import in_process
from support.loaded import converted, exported, onnx_model
from support.models import export, exporters, hybrids, reference
from support.reference_tokens import greedy_tokens

import graphpass
from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.engine.pipeline import parse_target
from graphpass.errors import PreconditionError, ReadError, UnsupportedError
from graphpass.runtime import open_session
from graphpass.targets import check_model
from graphpass.targets.ort.genai_config import why_no_generic_decoder
from graphpass.testing import tiny_model
from graphpass.verify import compare

#: With the context where the configuration beside the export does not tell it.
MODELS = {
    **dict.fromkeys(
        ("falcon", "gemma2", "gemma3_text", "gpt2", "gpt_neo", "gpt_oss", "gptj", "llama", "llama_12l"), ""
    ),
    **dict.fromkeys(("deepseek_v3", "gpt2_upcast", "mistral_sw8", "opt", "phi3", "qwen3", "qwen3_moe"), ""),
    **dict.fromkeys(("bloom", "falcon_alibi"), "{context=128}"),
}

#: Tokens to generate: as many as the shortest of the models has room for beside its prompt.
COUNT = 64


def folder_of(name: str, target: str, tmp_path: Path, capfd) -> Path:
    folder = tmp_path / name
    in_process(capfd, "convert", export(name, "onnx"), "-o", folder, "--target", target, "--no-verify")
    return folder


def generated(folder: Path, prompt: list[int], count: int, unused: int) -> tuple[list[int], list[int]]:
    """Tokens after ``prompt``, and again after going back into it."""
    config = json.loads((folder / "genai_config.json").read_text())
    # Generation goes on after the end of a text, as it does in sessions.
    config["model"]["eos_token_id"] = unused
    (folder / "genai_config.json").write_text(json.dumps(config))
    model = onnxruntime_genai.Model(str(folder))
    options = onnxruntime_genai.GeneratorParams(model)
    options.set_search_options(max_length=len(prompt) + count + 1)
    generator = onnxruntime_genai.Generator(model, options)

    def go_on(ids: list[int]) -> list[int]:
        generator.append_tokens(numpy.array([ids], numpy.int32))
        found = []
        for _ in range(count):
            generator.generate_next_token()
            found.append(int(generator.get_next_tokens()[0]))
        return found

    first = go_on(prompt)
    generator.rewind_to(2)
    return first, go_on(prompt[2:])


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == "gpt_oss" else (pytest.mark.slow,)) for name in sorted(MODELS)]
)
def test_it_generates_the_tokens_of_the_export(name, tmp_path, capfd):
    wanted = reference(name)
    prompt = list(wanted["prompt_ids"])
    session = open_session(exported(f"{name}/onnx"))
    tokens = greedy_tokens(session, session.prefill(prompt), COUNT)
    assert tokens[: len(wanted["greedy_ids"])] == list(wanted["greedy_ids"])
    folder = folder_of(name, f"ort-genai{MODELS[name]}", tmp_path, capfd)
    unused = min(set(range(320)) - set(tokens))
    assert generated(folder, prompt, COUNT, unused) == (tokens, tokens)
    assert json.loads((folder / "genai_config.json").read_text())["search"]["past_present_share_buffer"]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "bits"), [("llama", 8), ("deepseek_v3", 8), ("gpt_oss", 4), ("llama_12l", 4)])
def test_it_generates_from_caches_in_integers(name, bits, tmp_path, capfd):
    folder = folder_of(name, f"ort-genai{{cache-precision=i{bits}}}", tmp_path, capfd)
    model, prompt = graphpass.load(folder), list(reference(name)["prompt_ids"])
    assert {cache.precision for cache in analyze_caches(model).caches} == {f"i{bits}"}
    session = open_session(model)
    tokens = greedy_tokens(session, session.prefill(prompt), COUNT)
    config = json.loads((folder / "genai_config.json").read_text())
    assert config["search"]["past_present_share_buffer"]
    assert config["model"]["decoder"]["head_size"] == analyze_caches(model).attention[0].head_dim
    assert generated(folder, prompt, COUNT, min(set(range(320)) - set(tokens))) == (tokens, tokens)
    padding = parse_target("ort-genai").reads_padding
    assert compare(exported(f"{name}/onnx"), model, steps=2, padding=padding).passed


@pytest.mark.slow
def test_it_generates_the_tokens_of_a_hybrid(tmp_path, capfd):
    folder, name = tmp_path / "made", "qwen3_next_dense"
    done = in_process(capfd, "convert", hybrids() / name / "onnx-raw", "-o", folder, "--target", "ort-genai")
    assert "not compared: right padding: it enters linear caches" in done.out
    assert "contract  holds; confirmed: generated on onnxruntime-genai" in done.out
    config = json.loads((folder / "genai_config.json").read_text())
    assert not config["search"]["past_present_share_buffer"]
    assert config["model"]["decoder"]["inputs"]["past_recurrent_names"] == "past_key_values.%d.recurrent_state"
    wanted = json.loads((hybrids() / name / "reference.json").read_text())
    options = onnxruntime_genai.GeneratorParams(model := onnxruntime_genai.Model(str(folder)))
    options.set_search_options(max_length=20, min_length=20)
    generator = onnxruntime_genai.Generator(model, options)
    for _ in range(2):
        generator.append_tokens(numpy.array([wanted["prompt_ids"]], numpy.int32))
        found = []
        for _ in wanted["greedy_ids"]:
            generator.generate_next_token()
            found.append(int(generator.get_next_tokens()[0]))
        assert found == wanted["greedy_ids"]
        generator.rewind_to(0)


def named_as_by_transformers(name: str) -> str:
    """The states of a layer have numbers of their own."""
    return f"{name}_states.0" if "conv" in name else name


@pytest.mark.parametrize("rename", [str, named_as_by_transformers])
def test_it_generates_tokens_with_windowed_caches_only(rename, tmp_path, capfd):
    folder, wanted = tmp_path / "made", reference("lfm2")
    graphpass.save(renamed(onnx_model("lfm2", "onnx-genai"), rename), tmp_path / "model.onnx")
    target = "ort-genai{context=64}"
    done = in_process(capfd, "convert", tmp_path / "model.onnx", "-o", folder, "--target", target, "--no-verify")
    assert "contract  holds" in done.out
    decoder = json.loads((folder / "genai_config.json").read_text())["model"]["decoder"]
    assert decoder["layer_types"] == ["conv", "full_attention"] * 2
    assert (decoder["num_hidden_layers"], "past_recurrent_names" in decoder["inputs"]) == (4, False)
    options = onnxruntime_genai.GeneratorParams(model := onnxruntime_genai.Model(str(folder)))
    options.set_search_options(max_length=20, min_length=20)
    generator = onnxruntime_genai.Generator(model, options)
    generator.append_tokens(numpy.array([wanted["prompt_ids"]], numpy.int32))
    for token in wanted["greedy_ids"]:
        generator.generate_next_token()
        assert generator.get_next_tokens()[0] == token


def test_prompts_in_batches_of_a_hybrid_are_of_one_length():
    model = graphpass.load(hybrids() / "qwen3_next_dense" / "onnx-raw")
    reasons = [finding.reason for finding in check_model(model, "ort-genai").findings if finding.subject == "model"]
    assert reasons == ["prompts of a batch must have equal length: padding enters recurrent states and windows"]


def test_rows_count_positions_in_exports_counting_slots():
    """GroupQueryAttention rotates heads by the positions of each row."""
    model = graphpass.load(exporters("transformers-onnx-fused", "llama"))
    result = converted(model, "ort-genai").model
    assert len(list(result.graph.of_op("GroupQueryAttention"))) == 2
    comparison = compare(model, result, padding="right", steps=3)
    assert comparison.passed
    assert not any("right padding" in part for part in comparison.skipped)


def test_windows_of_unfused_attention_count_tokens():
    """Another operator reads the scores, as in Granite with sinks."""
    model = onnx_model("mistral_sw8").clone()
    rewriter, graph = model.rewriter(), model.graph
    write = rewriter.under("read")
    for softmax in graph.of_op("Softmax"):
        largest = write.op("ReduceMax", softmax.source(), axes=[3], keep=True)
        nothing = write.op("Multiply", largest, write.number(0.0, "f32"))
        rewriter.redirect_uses(softmax.outputs[0], write.op("Add", softmax.outputs[0], nothing))
    rewriter.finish()
    result = converted(model, "ort-genai").model
    assert len(list(result.graph.of_op("Softmax"))) == 2
    comparison = compare(model, result, padding="right", steps=12)
    assert comparison.passed
    assert not any("right padding" in part for part in comparison.skipped)


@pytest.mark.slow
@pytest.mark.parametrize("option", ["padding=any", "logits=last", "precision=f16"])
def test_options_generate_the_same(option, tmp_path, capfd):
    folder = folder_of("llama", f"ort-genai{{{option}}}", tmp_path, capfd)
    wanted = reference("llama")
    assert generated(folder, list(wanted["prompt_ids"]), 12, 0)[0] == list(wanted["greedy_ids"])


def test_the_configuration_adds_facts_to_the_graph(tmp_path, capfd):
    config = json.loads((folder_of("llama", "ort-genai", tmp_path, capfd) / "genai_config.json").read_text())
    assert config["model"]["type"] == "decoder"
    assert (config["model"]["context_length"], config["model"]["vocab_size"]) == (512, 320)
    assert (config["model"]["eos_token_id"], config["model"]["pad_token_id"]) == (2, 0)
    decoder = config["model"]["decoder"]
    assert (decoder["head_size"], decoder["num_key_value_heads"], decoder["num_hidden_layers"]) == (16, 2, 2)
    assert decoder["inputs"]["past_value_names"] == "past_key_values.%d.value"
    assert "position_ids" not in decoder["inputs"]


def test_decomposed_attention_shares_no_buffer():
    target = graphpass.get_target("ort-genai")
    assert (
        '"past_present_share_buffer": false'
        in target.files(onnx_model("llama"), onnx_model("llama").path)["genai_config.json"]
    )


def test_caches_of_different_heads_are_refused_before_a_trial():
    report = check_model(exported("deepseek_v3/onnx"), "ort-genai")
    reason = "cache past_key_values.0.key has 4 heads of 24, and its values 4 of 16, but both are allocated alike"
    assert report.findings[0].reason.startswith(reason)
    assert report.confirmation.outcome == "impossible"
    assert reason in report.confirmation.tried
    target = graphpass.get_target("ort-genai")
    with pytest.raises(UnsupportedError, match="GP397"):
        target.files(exported("deepseek_v3/onnx"), exported("deepseek_v3/onnx").path)


def test_single_token_models_are_refused_before_a_trial():
    model = onnx_model("llama")
    for port in model.proto.graph.input:
        if port.name in {"input_ids", "position_ids"}:
            port.type.tensor_type.shape.dim[1].dim_value = 1
    model.mark_edited()
    report = check_model(model, "ort-genai")
    assert report.findings[0].reason == "its input input_ids is of fixed length 1, and prompts are fed at once"
    assert report.confirmation.outcome == "impossible"


def test_an_unknown_number_of_positions_is_refused():
    target = graphpass.get_target("ort-genai")
    with pytest.raises(PreconditionError, match="GP396"):
        target.pipeline(exported("bloom/onnx"))


@pytest.mark.parametrize("text", ["[]", "{"])
def test_a_damaged_configuration_is_named(text, tmp_path):
    model = onnx_model("llama")
    model.path = tmp_path / "model.onnx"
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(ReadError, match="GP116"):
        graphpass.get_target("ort").pipeline(model)


@pytest.mark.parametrize("before", ["standardize-layout{to=BSHD}", "pack"])
def test_caches_get_the_layout_and_the_names_of_the_runtime(before):
    model = graphpass.PassManager(graphpass.parse(before)).run(tiny_model("llama")).model
    assert why_no_generic_decoder(model) is not None
    passes = parse_target("ort-genai{context=64}").pipeline(model)
    assert why_no_generic_decoder(graphpass.PassManager(passes).run(model).model) is None


def test_caches_without_the_number_of_the_layer_are_renamed():
    model = tiny_model("llama")
    ports = [node for node in model.graph.of_op("Parameter", "Result") if "key" in node.name or "value" in node.name]
    rewriter = model.rewriter()
    rewriter.rename_ports({node: f"port_{index}" for index, node in enumerate(ports)})
    rewriter.finish()
    assert "run rename-caches" in str(why_no_generic_decoder(model))
    passes = parse_target("ort-genai{context=64}").pipeline(model)
    assert passes[-1].name == "rename-caches"
    assert why_no_generic_decoder(graphpass.PassManager(passes).run(model).model) is None
