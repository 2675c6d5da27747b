"""`graphpass.testing`: tiny models, and assertions that fail with reasons."""

import subprocess
import sys

import pytest

import graphpass
from graphpass.errors import UsageError
from graphpass.testing import FAMILIES, assert_fused, assert_same, assert_text, parse_model, read_cases, run, tiny_model
from graphpass.testing.cases import update

pytest_plugins = ["graphpass.testing.fixtures"]

GRAPH = """
%x = Parameter : f32[n, 4]
%sum = Add(%x, 1.0)
%y = Relu(%sum)
Result(%y) {name=y}
"""


@pytest.mark.sampled(4)
def test_targets_fuse_the_attention_of_each_family(family):
    model = tiny_model(family)
    result = run(model, graphpass.get_target("cpu").pipeline(model))
    layers = 1 if FAMILIES[family].convolution else 2
    assert_fused(result, ScaledDotProductAttention=0 if FAMILIES[family].cap else layers)
    assert_same(model, result, steps=2)


def test_each_family_has_caches_in_each_dialect(tiny, family):
    inventory = graphpass.analyze_caches(tiny)
    assert inventory.kind == ("hybrid" if FAMILIES[family].convolution else "kv")
    assert {cache.name for cache in inventory.caches if cache.kind == "unknown"} == set()


def test_a_stateful_model_has_variables():
    assert_fused(tiny_model("llama", "stateful", layers=1), ReadValue=2, Assign=2)


def test_tiny_models_are_not_shared():
    model = tiny_model("gpt2")
    model.rewriter().drop([node for node in model.graph.of_op("Result") if node.name != "logits"])
    assert len(tiny_model("gpt2").outputs) == 5


def test_an_unknown_family():
    with pytest.raises(UsageError, match="GP274: there is no tiny model of gpt5"):
        tiny_model("gpt5")


def test_text_is_compared_without_names_and_order(dialect):
    assert_text(
        parse_model(GRAPH, dialect), GRAPH.replace("%sum", "%other").replace("Relu(%other)", "Relu(%other) : f32[n, 4]")
    )


@pytest.mark.parametrize(
    ("line", "other"),
    [
        ("Relu(%sum)", "Tanh(%sum)"),
        ("1.0", "2.0"),
        ("f32[n, 4]", "f32[n, 5]"),
        ("Relu(%sum)", "Relu(%sum) : f16[n, 4]"),
    ],
)
def test_another_text_is_a_diff(line, other):
    with pytest.raises(AssertionError, match=r"(?s)--- expected.*\n-.*\n\+"):
        assert_text(parse_model(GRAPH), GRAPH.replace(line, other))


def test_other_counts_are_named():
    with pytest.raises(AssertionError, match="Relu: 1 instead of 0, Tanh: 0 instead of 2; the model has Add 1, "):
        assert_fused(parse_model(GRAPH), Relu=0, Tanh=2, Add=1)


def test_other_numbers_are_reported():
    model = tiny_model("llama", layers=1)
    text = graphpass.text(model)
    other = parse_model(text.replace("2.0)", "2.5)", 1))
    assert_same(parse_model(text), parse_model(text), steps=1, proven=True)
    with pytest.raises(AssertionError, match="DIFFERENT: "):
        assert_same(parse_model(text), other, steps=1)


CASE = f"""// RUN: to-openvino
// DIALECT: onnx
// SIZES: n=2

// ----- one
{GRAPH}// AFTER
{GRAPH.replace("f32[n, 4]", "f32[?, 4]")}
"""


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("Add(%x, 1.0)", "Add(%x, 2.0)", "--- expected"),
        ("// AFTER", "// OUTCOME: 9 operators\n// AFTER", "the outcome is '5 operators'"),
        ("// AFTER", "// NOTE: none\n// AFTER", "the notes are "),
        ("// AFTER", "// ERROR: GP366 no\n// AFTER", "ends without GP366 no"),
        ("// DIALECT: onnx", "// DIALECT: openvino", "ends with GP301"),
    ],
)
def test_a_different_case(tmp_path, old, new, words):
    file = tmp_path / "case.graph"
    file.write_text(CASE)
    read_cases(tmp_path)[0].check()
    file.write_text(new.join(CASE.rsplit(old, 1)))
    with pytest.raises(AssertionError) as raised:
        read_cases(file)[0].check()
    assert words in str(raised.value)


def test_a_case_is_updated(tmp_path):
    file = tmp_path / "case.graph"
    file.write_text(f"{CASE}\n// ----- two\n{GRAPH}")
    update(file)
    assert [case.title for case in read_cases(file)] == ["one", "two"]
    for case in read_cases(file):
        case.check()


def test_a_file_without_cases_is_left_alone(tmp_path):
    file = tmp_path / "notes.md"
    file.write_text("notes  \n\n")
    done = subprocess.run(
        [sys.executable, "-m", "graphpass.testing", file], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"Error: {file}: GP270: the file has no case")
    assert file.read_text() == "notes  \n\n"
    done = subprocess.run(
        [sys.executable, "-m", "graphpass.testing", tmp_path / "none"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr.startswith("Usage: python -m graphpass.testing ")) == (2, True)
