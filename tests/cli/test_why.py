import pytest
from support.commands import in_process
from support.models import export


def why(capfd, model, variant, *arguments):
    done = in_process(capfd, "why", export(model, variant), *arguments)
    assert (done.code, done.err) == (0, "")
    return done.out


def test_the_path_of_a_kv_cache_is_printed(capfd):
    out = why(capfd, "llama", "onnx", "past_key_values.1.value")
    concat = "Concat /model/layers.1/self_attn/Concat_6"
    assert out.startswith("past_key_values.1.value: kv, value, layer 1\n\nevidence\n  appended along axis 2 by ")
    path = out[out.index("from past to present") : out.index("read by")].splitlines()
    assert [line.split()[0] for line in path[1:4]] == ["Parameter", "Concat", "Result"]
    assert f"read by\n  Softmax /model/layers.1/self_attn/Softmax, as value\n    through {concat}\n" in out
    assert f"  no   cross: computed once, then only read\n       the present is made by {concat}\n" in out
    assert "  yes  kv: attention reads the positions that are appended or written\n" in out


def test_the_number_of_a_layer_names_its_first_cache(capfd):
    out = why(capfd, "gemma3_text", "onnx", "1")
    assert out.startswith("past_key_values.1.key: kv, key, layer 1\n")
    window = "attends to k if (k <= past + q and past + q <= 7 + k and attention_mask[b, k])"
    assert f"    {window}\n    reads position past + q\n" in out


def test_a_linear_cache_names_the_miss_of_each_rule(capfd):
    out = why(capfd, "lfm2", "ov-stateful", "cache_params.past.conv.1")
    told = out[out.index("rules, in") :].splitlines()
    rules = [line.split()[0] for line in told if line.startswith(("  no ", "  yes"))]
    assert rules == ["no"] * 8 + ["yes"]
    missed = (
        "the present is made by Broadcast __module.model.model.layers.2.conv/aten::copy_/Broadcast, not by a Concat"
    )
    assert missed in out
    assert "but no recognized attention reads it by position" in out
    assert "read by\n  no recognized attention\n" in out


def test_a_cache_inside_an_operator(capfd):
    out = why(capfd, "llama", "onnx-genai", "past_key_values.0.key")
    reader = "GroupQueryAttention /model/layers.0/attn/GroupQueryAttention, as key"
    assert f"read by\n  {reader}\n    attends to k if " in out
    assert "  yes  an operator updates it internally\n" in out


@pytest.mark.parametrize("file", ["decoder_with_past_model.onnx", "decoder_model_merged.onnx"])
def test_a_cross_cache_is_never_written(capfd, file):
    done = in_process(capfd, "why", export("t5", "onnx") / file, "past_key_values.1.encoder.value")
    assert done.code == 0
    assert "the past; nothing is written back\n  Parameter " in done.out
    assert "  yes  cross: computed once, then only read\n       never written" in done.out


def test_all_prints_the_whole_path(capfd):
    short = why(capfd, "qwen3_next", "ov-stateful", "cache_params.past.ssm.0")
    long = why(capfd, "qwen3_next", "ov-stateful", "cache_params.past.ssm.0", "--all")
    assert len(long.splitlines()) > len(short.splitlines())


@pytest.mark.parametrize("name", ["past_key_values.0.keypresent.0.key", "past_key_values.0.key"])
def test_a_variable_is_named_by_its_id_or_a_prefix(capfd, name):
    assert why(capfd, "llama", "ov-stateful", name).startswith("past_key_values.0.keypresent.0.key: kv, key, layer 0")


def test_a_cache_is_named_by_its_present(capfd):
    assert why(capfd, "llama", "onnx", "present.1.key").startswith("past_key_values.1.key: ")
    assert why(capfd, "llama", "onnx", "present.1.k").startswith("past_key_values.1.key: ")


def test_an_unknown_name_gets_a_suggestion(capfd):
    done = in_process(capfd, "why", export("llama", "onnx"), "past_key_values.1.valeu")
    assert done.code == 2
    assert done.out == ""
    assert done.err.startswith("error: GP217: there is no cache called 'past_key_values.1.valeu'\n")
    assert "did you mean past_key_values.1.value" in done.err


@pytest.mark.parametrize(
    ("variant", "name", "words"),
    [
        ("onnx", "zzz", "graphpass inspect --all lists the caches"),
        ("onnx", "", "there is no cache called ''"),
        ("onnx", "past_key_values", "4 caches have names that begin with 'past_key_values'"),
        ("onnx", "present.1", "\nhint: they are past_key_values.1.key, past_key_values.1.value\n"),
        ("onnx-nocache", "past_key_values.0.key", "the model has no caches"),
    ],
)
def test_unknown_names_are_refused(capfd, variant, name, words):
    done = in_process(capfd, "why", export("llama", variant), name)
    assert done.code == 2
    assert words in done.err
