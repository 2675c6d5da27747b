import numpy
import openvino
import pytest
from onnx import TensorProto, helper
from support.loaded import exported, openvino_after
from support.longrope import with_two_tables
from support.models import export, exporters, reference

from graphpass.analysis.lengths.past_order import past_order
from graphpass.dialects.onnx.model import OnnxModel
from graphpass.engine.manager import PassManager
from graphpass.engine.pipeline import format_passes, format_target, parse, parse_target
from graphpass.errors import PassFailedError, PreconditionError, UnsupportedError, UsageError
from graphpass.io import load
from graphpass.runtime import open_session
from graphpass.targets.cpu.target import CPU
from graphpass.targets.gpu import trial
from graphpass.targets.gpu.target import GPU
from graphpass.targets.npu.target import NPU
from graphpass.targets.ort.target import ORT
from graphpass.targets.paged.target import Paged
from graphpass.verify import compare_within


def pipeline(model, variant, **options):
    return format_passes(CPU(**options).pipeline(load(export(model, variant)))).split(",")


def test_from_onnx_everything_is_done():
    names = pipeline("llama", "onnx")
    assert names[:3] == ["to-openvino", "change-precision", "fuse-attention"]
    assert names[-2:] == ["make-stateful", "set-runtime-options"]


@pytest.mark.parametrize(("opset", "first"), [(17, "upgrade-opset{to=18}"), (18, "to-openvino")])
def test_reductions_whose_axes_the_frontend_ignores_are_upgraded(opset, first):
    hidden = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["b", 3, 4])
    axes = {"axes": [-1]} if opset < 18 else {}
    node = helper.make_node("ReduceL1", ["x"] + ([] if axes else ["axes"]), ["y"], keepdims=0, **axes)
    constants = [] if axes else [helper.make_tensor("axes", TensorProto.INT64, [1], [-1])]
    graph = helper.make_graph([node], "g", [hidden], [helper.make_empty_tensor_value_info("y")], constants)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    model = OnnxModel(proto)
    names = format_passes(CPU().pipeline(model)).split(",")
    assert names[0] == first
    after = PassManager(parse(",".join(names[: names.index("to-openvino") + 1]))).run(model).model
    x = numpy.arange(24, dtype=numpy.float32).reshape(2, 3, 4)
    result = openvino.compile_model(after.ov_model, "CPU")({"x": x})[0]
    numpy.testing.assert_allclose(result, numpy.abs(x).sum(-1))


def test_operators_of_encoders_are_lowered_for_the_plugin():
    names = format_passes(GPU().pipeline(load(exporters("encoders", "bert")))).split(",")
    assert names[-2:] == ["lower-boolean-gathers", "reshape-by-constants{unknown=true}"]


def test_a_stateless_ir_needs_no_conversion():
    assert pipeline("llama", "ov-stateless") == pipeline("llama", "onnx")[1:]


def test_a_stateful_model_is_not_made_stateful_again():
    assert pipeline("llama", "ov-stateful") == [
        name for name in pipeline("llama", "ov-stateless") if name != "make-stateful"
    ]


def test_reorder_follows_the_variables_if_requested():
    names = pipeline("llama", "onnx")
    assert pipeline("llama", "onnx", cache="reorder") == [*names[:-1], "insert-reorder", names[-1]]


@pytest.mark.parametrize("target", [CPU(), GPU()])
@pytest.mark.parametrize("name", ["gemma2", "gemma3_text", "gpt_neo", "gpt_oss", "mistral_sw8"])
def test_windows_leave_hidden_positions_alone(name, target):
    """So a session takes no entries out of the caches when drafts are rejected."""
    model = exported(f"{name}/onnx")
    result = openvino_after(model, *target.pipeline(model))
    assert past_order(result) == "order"
    session = open_session(result)
    session.prefill(reference(name)["prompt_ids"])
    for _ in range(9):
        session.step([[7, 8, 9]])
        session.trim(2)
    found = session.step([4])[0, -1]
    tokens = [*reference(name)["prompt_ids"], *[7] * 9, 4]
    numpy.testing.assert_allclose(found, open_session(model).prefill(tokens)[0, -1], atol=1e-4)
    assert (session.stats.compactions, session.stats.bytes_copied) == (0, 0)


@pytest.mark.parametrize("variant", ["onnx-nocache", "ov-nocache"])
def test_a_model_without_caches_is_refused_by_make_stateful(variant):
    model = load(export("llama", variant))
    passes = CPU().pipeline(model)
    with pytest.raises(PreconditionError, match="GP302: pass make-stateful"):
        PassManager(passes).run(model)


@pytest.mark.parametrize("variant", ["onnx", "ov-stateless", "ov-stateful"])
def test_the_result_keeps_the_contract(variant):
    model = load(export("llama", variant))
    CPU().require_contract(PassManager(CPU().pipeline(model)).run(model).model)


@pytest.mark.parametrize(("variant", "word"), [("onnx", "OpenVINO IR"), ("ov-stateless", "stateful")])
def test_a_broken_contract_is_reported(variant, word):
    with pytest.raises(PassFailedError, match=f"GP405: target cpu requires {word!r}"):
        CPU().require_contract(load(export("llama", variant)))


@pytest.mark.parametrize(
    ("target", "more"),
    [(Paged(), []), (GPU(), ["lower-variadic-split", "lower-boolean-gathers", "reshape-by-constants{unknown=true}"])],
)
@pytest.mark.parametrize("variant", ["onnx", "ov-stateless", "ov-stateful"])
def test_other_openvino_devices_get_the_same_form(target, more, variant):
    model = load(export("llama", variant))
    assert format_passes(target.pipeline(model)).split(",") == [*pipeline("llama", variant), *more]
    target.require_contract(PassManager(target.pipeline(model)).run(model).model)


@pytest.mark.parametrize("variant", ["onnx", "ov-stateless", "ov-stateful"])
def test_passes_specific_to_an_npu(variant):
    model = load(export("llama", variant))
    names = format_passes(NPU().pipeline(model)).split(",")
    own = {"mask-padding", "densify-experts", "read-length-from-keys", "lower-boolean-masks", "rename-variables"}
    own |= {"lower-mvn", "reshape-results", "scatter-visual-features", "split-value-transposes"}
    own |= {"widen-dequantization"}
    options = {"simplify-shapes": "{identities=false}", "expose-position-ids": "{always=true}"}
    options |= {"expose-window": "{partial=true}"}
    others = [name + options.get(name, "") for name in pipeline("llama", variant)]
    assert [name for name in names if name not in own] == others
    assert own <= set(names)
    assert names.index("mask-padding") < names.index("expose-position-ids{always=true}")
    NPU().require_contract(PassManager(NPU().pipeline(model)).run(model).model)


def test_positions_are_exposed_if_padding_is_masked():
    assert "expose-position-ids" in format_passes(NPU().pipeline(load(export("lfm2", "ov-stateless"))))


def test_a_gpu_can_reorder_slots():
    model = load(export("llama", "onnx"))
    result = PassManager(GPU(cache="reorder").pipeline(model)).run(model).model
    names = {port.name for port in result.inputs}
    assert {"src_idx", "dst_idx"} <= names
    assert "beam_idx" not in names


@pytest.mark.parametrize(("target", "instead"), [(NPU, "rewind a session"), (Paged, "scheduler")])
def test_targets_without_reorder_refuse_the_option(target, instead):
    with pytest.raises(UsageError, match="GP224") as caught:
        target(cache="reorder").pipeline(load(export("llama", "onnx")))
    assert instead in caught.value.hint


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
def test_positions_are_exposed_if_padding_does_not_reach_linear_states(name, variant, positions):
    assert ("expose-position-ids" in pipeline(name, variant)) == positions


@pytest.mark.parametrize(
    ("name", "step", "added"),
    [
        ("llama", "insert-reorder", "dst_idx"),
        ("llama", "insert-reorder{form=compact}", "dst_idx"),
        ("llama", "add-tree-mask", "tree_mask"),
        ("lfm2", "insert-snapshot", "steps_back"),
    ],
)
def test_an_npu_refuses_inputs_for_cache_edits(name, step, added):
    model = PassManager(parse(step)).run(load(export(name, "ov-stateful"))).model
    with pytest.raises(UnsupportedError, match=f"GP369: NPUW treats the input {added} as a cache") as caught:
        NPU().pipeline(model)
    assert ("reset and feed the tokens again" if added == "steps_back" else "rewind a session") in caught.value.hint


class TestOptions:
    @pytest.mark.parametrize(
        ("text", "target"),
        [
            ("gpu", GPU()),
            ("gpu{cache=reorder}", GPU(cache="reorder")),
            ("gpu{cache=reorder,trim=begin-one}", GPU(cache="reorder", trim="begin-one")),
            ("cpu{cache=beam}", CPU()),
            ("ort{cache=reorder}", ORT(cache="reorder")),
        ],
    )
    def test_options_survive_text(self, text, target):
        assert parse_target(text) == target
        assert parse_target(format_target(target)) == target

    @pytest.mark.parametrize(
        ("text", "error"),
        [
            ("gpux", "GP215: unknown target 'gpux' .column 1"),
            ("gpu{form=reorder}", "GP212: gpu has no option 'form' .column 5"),
            ("gpu{cache=paged}", "GP213"),
            ("gpu{trim=begin-one}", "GP213.*trim needs cache=reorder"),
            ("cpu,gpu", "GP210: expected one target, got 2"),
            ("", "GP210: expected one target, got 0"),
        ],
    )
    def test_wrong_options_are_refused(self, text, error):
        with pytest.raises(UsageError, match=error):
            parse_target(text)

    def test_the_trim_of_a_gpu(self):
        model = load(export("llama", "ov-stateful"))
        passes = format_passes(GPU(cache="reorder", trim="begin-one").pipeline(model))
        assert ",insert-reorder{trim=begin-one},set-runtime-options,lower-variadic-split" in passes

    @pytest.mark.parametrize(("version", "begins"), [(None, False), ("2026.4.1", True), ("2027.1.0", False)])
    def test_the_trim_of_the_installed_version(self, version, begins, monkeypatch):
        monkeypatch.setattr(trial, "plugin_version", lambda: version)
        target = GPU(cache="reorder")
        passes = format_passes(target.pipeline(load(export("llama", "ov-stateful"))))
        assert ("insert-reorder{trim=begin-one}" in passes) == begins
        assert target.made_for == ("GPU plugin of OpenVINO 2026.4.1" if begins else None)
        assert target.proving_device == ("GPU" if begins else "CPU")
        assert GPU().made_for is None


def test_positions_that_select_frequencies_stay_in_the_model():
    """Keys before and after the change have other frequencies, so that padding moves their angles."""
    model = with_two_tables(16)
    assert "expose-position-ids" not in format_passes(CPU().pipeline(model))
    assert "expose-position-ids" in format_passes(Paged().pipeline(model))
    assert compare_within(model, PassManager(CPU().pipeline(model)).run(model).model, steps=1).passed
