import pytest
from support.commands import in_process
from support.models import export

from graphpass.ir.text.parser import parse_text


def printed(capfd, model, variant, *arguments):
    done = in_process(capfd, "print", export(model, variant), *arguments)
    assert (done.code, done.err) == (0, "")
    return done.out


def test_a_model_with_its_masks(capfd):
    out = printed(capfd, "llama", "onnx")
    assert "%input_ids = Parameter : i64[batch_size, sequence_length]\n" in out
    assert out.count("// attends to k if (k <= past + q and attention_mask[b, k])\n%L") == 2
    assert "Result(%lm_head.MatMul) {name=logits}\n" in out


@pytest.mark.parametrize("variant", ["onnx", "ov-stateful"])
def test_a_layer_ends_with_the_stream_and_its_caches(capfd, variant):
    statements = parse_text(printed(capfd, "llama", variant, "--layer", "0"))
    assert 60 < len(statements) < 200
    assert sum(statement.kind in {"Result", "Assign"} for statement in statements) == 2
    own = [name for statement in statements if statement.kind != "Parameter" for name in statement.results]
    assert {name for name in own if name.startswith("L1.")} <= {"L1.input_layernorm.Cast"}


def test_the_surroundings_of_a_node(capfd):
    out = printed(capfd, "llama", "onnx", "--around", "layers.0/self_attn/Softmax", "--distance", "1")
    kinds = [statement.kind for statement in parse_text(out)]
    assert kinds == ["Parameter", "Parameter", "Add", "Softmax", "IsNaN", "Select"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ["--around", "self_attn/Softmax"],
            "GP271: 2 nodes have names that end with 'self_attn/Softmax': /model/layers.0/",
        ),
        (["--around", "layers.0/self_attn/Softmin"], "hint: did you mean /model/layers.0/self_attn/Softmax"),
        (
            ["--around", "x?"],
            "GP271: no node has a name that ends with 'x?'\nhint: graphpass print MODEL lists the nodes",
        ),
        (["--layer", "2"], "GP272: layer 2 has no caches\nhint: layers with caches: 0, 1"),
    ],
)
def test_unknown_names_are_refused(capfd, arguments, words):
    done = in_process(capfd, "print", export("llama", "onnx"), *arguments)
    assert (done.code, done.out) == (2, "")
    assert words in done.err
