import pytest
from support.models import export

from graphpass.errors import PassFailedError, PreconditionError, UsageError
from graphpass.manager import PassManager
from graphpass.model import load
from graphpass.pipeline import format_passes
from graphpass.targets import CPU, GPU, NPU, Paged


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


@pytest.mark.parametrize("target", [GPU(), Paged()])
@pytest.mark.parametrize("variant", ["onnx", "ov-stateless", "ov-stateful"])
def test_other_runtimes_of_openvino_take_the_same_form(target, variant):
    model = load(export("llama", variant))
    assert format_passes(target.pipeline(model)).split(",") == pipeline("llama", variant)
    target.check(PassManager(target.pipeline(model)).run(model).model)


@pytest.mark.parametrize("variant", ["onnx", "ov-stateless", "ov-stateful"])
def test_an_npu_takes_less_and_wants_more(variant):
    model = load(export("llama", variant))
    names = format_passes(NPU().pipeline(model)).split(",")
    own = {"mask-padding", "lower-boolean-masks", "insert-position-ids", "rename-variables"}
    assert [name for name in names if name not in own] == pipeline("llama", variant)
    assert own <= set(names)
    assert names.index("mask-padding") < names.index("expose-position-ids")
    NPU().check(PassManager(NPU().pipeline(model)).run(model).model)


def test_positions_are_exposed_where_padding_is_masked():
    assert "expose-position-ids" in format_passes(NPU().pipeline(load(export("lfm2", "ov-stateless"))))


def test_a_gpu_can_reorder_slots():
    model = load(export("llama", "onnx"))
    made = PassManager(GPU().pipeline(model, reorder=True)).run(model).model
    names = {port.name for port in made.inputs}
    assert {"src_idx", "dst_idx"} <= names
    assert "beam_idx" not in names


@pytest.mark.parametrize("target", [NPU(), Paged()])
def test_some_reorder_nothing(target):
    with pytest.raises(UsageError, match="GP224"):
        target.pipeline(load(export("llama", "onnx")), reorder=True)


@pytest.mark.parametrize(
    ("name", "variant", "positions"),
    [
        ("granitemoehybrid", "ov-stateless", True),
        ("granitemoehybrid", "ov-stateful", True),
        ("lfm2", "ov-stateless", False),
        ("qwen3_next", "ov-stateful", False),
        ("mamba", "ov-stateful", False),
    ],
)
def test_positions_are_exposed_where_padding_does_not_reach_linear_states(name, variant, positions):
    assert ("expose-position-ids" in pipeline(name, variant)) == positions
