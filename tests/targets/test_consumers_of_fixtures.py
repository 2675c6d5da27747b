"""What others see in real exports, told by their rules and, where it can be observed, by themselves."""

import functools

import numpy
import openvino
import openvino_genai
import pytest
from support.models import export, fixtures, reference
from support.quick_cases import model_files

import graphpass
from graphpass.targets.consumers import view_caches

EXACT = {"INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f32"}
CONSUMERS = ["openvino.genai", "optimum-intel", "ONNX Runtime OpenVINO EP", "onnxruntime-genai", "NPUW"]

ENCODER_DECODERS = ("t5", "whisper")
HYBRIDS = ("granitemoehybrid", "lfm2", "qwen3_next")


@functools.cache
def seen(path):
    model = graphpass.load(fixtures() / path)
    inventory = graphpass.analyze_caches(model)
    return model, inventory, {view.consumer: view for view in view_caches(model, inventory)}


@pytest.mark.parametrize("path", model_files())
def test_every_view_of_every_model_is_whole(path):
    _, inventory, views = seen(path)
    assert list(views) == CONSUMERS
    for view in views.values():
        assert view.verdict == "agrees" or view.reasons
        assert [one.cache for one in view.caches] in ([], [cache.name for cache in inventory.caches])
        if view.verdict == "agrees":
            kinds = {cache.name: cache.kind for cache in inventory.caches if cache.kind != "cross"}
            assert {one.cache: one.sees for one in view.caches if one.cache in kinds} == kinds
        for reason in view.reasons:
            assert reason.strip() == reason
            assert not reason.endswith(".")


STATEFUL = [path for path in model_files() if "ov-stateful" in path and not path.startswith(ENCODER_DECODERS)]


@pytest.mark.parametrize("path", STATEFUL)
def test_openvino_genai_reads_exports_of_optimum(path):
    view = seen(path)[2]["openvino.genai"]
    if path.startswith("mamba"):
        assert view.verdict == "misreads"
        assert view.reasons == ("will fail because it never feeds the input cache_position",)
        assert {one.sees for one in view.caches} == {"linear"}
    else:
        assert (view.verdict, view.reasons) == ("agrees", ())


@pytest.mark.parametrize("name", ["llama", "gpt2", "gemma3_text", "deepseek_v3", "mamba", *HYBRIDS])
def test_openvino_genai_behaves_as_predicted(name):
    view = seen(f"{name}/ov-stateful/openvino_model.xml")[2]["openvino.genai"]
    prompt = openvino.Tensor(numpy.array([reference(name)["prompt_ids"]], dtype=numpy.int64))
    config = openvino_genai.GenerationConfig(max_new_tokens=4, ignore_eos=True)

    def generate():
        pipeline = openvino_genai.LLMPipeline(export(name, "ov-stateful"), "CPU", ATTENTION_BACKEND="SDPA", **EXACT)
        return list(pipeline.generate(prompt, config).tokens[0])

    if view.verdict == "agrees":
        assert generate() == reference(name)["greedy_ids"][:4]
    else:
        with pytest.raises(RuntimeError, match="position_ids"):
            generate()


@pytest.mark.parametrize("path", [path for path in model_files() if "ov-state" not in path])
def test_openvino_consumers_have_no_verdict_on_onnx(path):
    views = seen(path)[2]
    assert views["openvino.genai"].verdict in {"cannot tell", "not applicable"}
    assert views["NPUW"].verdict in {"cannot tell", "not applicable"}


@pytest.mark.parametrize("path", [path for path in STATEFUL if not path.startswith(("mamba", "zamba2", *HYBRIDS))])
def test_npuw_reads_the_names_of_dense_models(path):
    view = seen(path)[2]["NPUW"]
    if path.startswith("deepseek_v3"):
        assert view.verdict == "misreads"
        assert view.reasons[0].startswith("will fail on it because the size of the result of NonZero depends on")
        assert {one.sees for one in view.caches} == {"kv"}
    else:
        assert view.verdict == "agrees"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("granitemoehybrid", "will fail on it because the size of the result"),
        ("lfm2", "will compute incorrect results with cache_params.past.conv.0"),
        ("qwen3_next", "will compute incorrect results with cache_params.past.conv.0"),
    ],
)
def test_npuw_fails_on_hybrids_and_reads_their_names(name, words):
    _, inventory, views = seen(f"{name}/ov-stateful/openvino_model.xml")
    (reason,) = views["NPUW"].reasons
    assert reason.startswith(words)
    assert [one.sees for one in views["NPUW"].caches] == [cache.kind for cache in inventory.caches]


@pytest.mark.parametrize("path", [path for path in model_files() if "/ov-" in path])
def test_optimum_reads_its_own_exports(path):
    view = seen(path)[2]["optimum-intel"]
    assert view.verdict == ("agrees" if seen(path)[1].caches else "not applicable")


def test_optimum_pairs_merged_decoders_wrongly():
    view = seen("t5/onnx/decoder_model_merged.onnx")[2]["optimum-intel"]
    assert view.verdict == "misreads"
    assert "past_key_values.1.decoder.key with present.0.encoder.key" in view.reasons[0]


@pytest.mark.parametrize("name", ["llama", "llama_12l", "qwen3", "lfm2"])
def test_onnxruntime_genai_reads_exports_of_its_builder(name):
    assert seen(f"{name}/onnx-genai/model.onnx")[2]["onnxruntime-genai"].verdict == "agrees"


def test_onnxruntime_genai_needs_other_names_in_its_configuration():
    view = seen("whisper/onnx-genai/decoder.onnx")[2]["onnxruntime-genai"]
    assert view.verdict == "cannot tell"
    # As genai_config.json beside that model has it.
    assert 'needs past_key_names = "past_key_self_%d" in genai_config.json' in view.reasons
    assert 'needs cross_past_value_names = "past_value_cross_%d" in genai_config.json' in view.reasons


def test_the_execution_provider_leaves_linear_states_outside():
    view = seen("lfm2/onnx-genai/model.onnx")[2]["ONNX Runtime OpenVINO EP"]
    assert view.verdict == "misreads"
    assert view.reasons[0].startswith("will leave past.0.conv and past.2.conv an ordinary input")
    assert [one.sees for one in view.caches] == ["nothing", "kv", "kv", "nothing", "kv", "kv"]


def test_the_execution_provider_wants_equal_shapes_on_gpu():
    view = seen("deepseek_v3/onnx/model.onnx")[2]["ONNX Runtime OpenVINO EP"]
    assert view.verdict == "misreads"
    assert "on GPU" in view.reasons[0]
