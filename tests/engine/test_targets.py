import pytest
from support.models import export

from graphpass.errors import PassFailedError, PreconditionError
from graphpass.manager import PassManager
from graphpass.model import load
from graphpass.pipeline import format_passes
from graphpass.targets import CPU


def pipeline(model, variant, **options):
    return format_passes(CPU().pipeline(load(export(model, variant)), **options)).split(",")


def test_from_onnx_everything_is_done():
    names = pipeline("llama", "onnx")
    assert names[:3] == ["to-openvino", "compute-in-f32", "fuse-attention"]
    assert names[-1] == "make-stateful"


def test_from_a_stateless_ir_nothing_is_converted():
    assert pipeline("llama", "ov-stateless") == pipeline("llama", "onnx")[1:]


def test_a_stateful_model_is_not_made_stateful_again():
    assert pipeline("llama", "ov-stateful") == pipeline("llama", "ov-stateless")[:-1]


def test_reorder_comes_last_and_only_when_asked_for():
    assert pipeline("llama", "onnx", reorder=True) == [*pipeline("llama", "onnx"), "insert-reorder"]


@pytest.mark.parametrize("variant", ["onnx-nocache", "ov-nocache"])
def test_a_model_without_caches_is_refused_by_make_stateful(variant):
    model = load(export("llama", variant))
    passes = CPU().pipeline(model)
    with pytest.raises(PreconditionError, match="GP302: pass make-stateful"):
        PassManager(passes).run(model)


@pytest.mark.parametrize("variant", ["onnx", "ov-stateless", "ov-stateful"])
def test_the_result_keeps_the_contract(variant):
    model = load(export("llama", variant))
    CPU().check(PassManager(CPU().pipeline(model)).run(model).model)


@pytest.mark.parametrize(("variant", "word"), [("onnx", "OpenVINO IR"), ("ov-stateless", "stateful")])
def test_a_broken_contract_is_told(variant, word):
    with pytest.raises(PassFailedError, match=f"GP405: target cpu needs {word!r}"):
        CPU().check(load(export("llama", variant)))
