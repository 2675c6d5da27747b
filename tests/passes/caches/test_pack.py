"""pack and unpack of states: a layer's states in one flat tensor and back again, and packed models of others."""

from __future__ import annotations

import numpy
import onnx
import openvino
import pytest
from openvino import opset6, opset8, opset13
from openvino.op.util import Variable, VariableInfo
from support.decode import compiled
from support.graph_builder import builder_with_hidden_states
from support.loaded import openvino_model
from support.models import export
from support.pack_round_trip import pack_and_unpack
from support.pipelines import run_passes
from support.reference_tokens import generates_reference_tokens

import graphpass
from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.engine.passes import Skipped
from graphpass.errors import UnsupportedError
from graphpass.runtime import open_session

QUICK = [("mamba", "onnx-raw"), ("granitemoehybrid", "ov-stateless"), ("qwen3_next", "ov-stateful")]

SLOW = [
    ("mamba", "ov-stateless"),
    ("mamba", "ov-stateful"),
    ("granitemoehybrid", "ov-stateful"),
    ("qwen3_next", "ov-stateless"),
]


def linear(model):
    return graphpass.analyze_caches(model).of_kind("linear")


def elements(cache):
    return numpy.prod(cache.shape[1:])


def there_and_back(name, variant):
    model = graphpass.load(export(name, variant))
    one_by_one = name == "mamba" and variant.startswith("ov")
    packed, back = pack_and_unpack(model, "linear")
    before = linear(model)
    for number, cache in enumerate(linear(packed)):
        states = before[2 * number : 2 * number + 2]
        assert (cache.role, cache.layer, cache.axes) == ("unknown", states[0].layer, states[0].axes)
        assert cache.shape[1:] == (1, sum(elements(state) for state in states))
        assert any(fact.startswith("2 states in one tensor: ") for fact in cache.evidence)
    assert generates_reference_tokens(packed, name, one_by_one=one_by_one)
    assert generates_reference_tokens(back, name, one_by_one=one_by_one)


@pytest.mark.parametrize(("name", "variant"), QUICK)
def test_unpacking_restores_the_model(name, variant):
    there_and_back(name, variant)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "variant"), SLOW)
def test_pack_and_unpack_restore_other_forms(name, variant):
    there_and_back(name, variant)


@pytest.mark.parametrize(
    ("name", "variant"), [("lfm2", "onnx-genai"), ("lfm2", "ov-stateful"), ("llama", "ov-stateless")]
)
def test_a_single_state_of_a_layer_is_not_packed(name, variant):
    result = run_passes(graphpass.load(export(name, variant)), "pack{only=linear}")[1]
    assert result == Skipped("no layer has two linear caches")


def test_beams_move_the_whole():
    """Rows of a batch change places in the middle of a sequence."""
    model = openvino_model("qwen3_next")
    found = []
    for one in (model, run_passes(model, "pack{only=linear}")[0]):
        session = open_session(one)
        session.prefill([[3, 1, 4, 1], [2, 7, 1, 8]])
        session.select([1, 0])
        found.append(session.step([5, 9]))
    numpy.testing.assert_allclose(found[1], found[0], atol=1e-5)


def steps(model, count=4):
    """Logits over several steps of a stateful model."""
    request = compiled(model.ov_model).create_infer_request()
    found = []
    for number in range(count):
        request.infer({"input_ids": numpy.array([number, 3]), "beam_idx": numpy.array([1, 0], numpy.int32)})
        found.append(request.get_output_tensor(0).data.copy())
    return found


def delayed(start):
    """A window, and what that was a step before; they start as 0 and as 2, or as other numbers."""
    ids = opset13.parameter([-1], openvino.Type.i64, name="input_ids")
    beams = opset13.parameter([-1], openvino.Type.i32, name="beam_idx")
    for parameter, name in ((ids, "input_ids"), (beams, "beam_idx")):
        parameter.output(0).set_names({name})
    batch = opset13.gather(opset13.shape_of(ids), numpy.array([0]), numpy.array(0))
    shape = opset13.concat([batch, opset13.constant([2, 3])], 0)
    starts = [opset13.broadcast(numpy.float32(number), shape) for number in (0, 2)]
    if start == "numbers":
        starts[1] = opset13.multiply(starts[1], opset13.constant(numpy.float32([1, 2, 3])))
    variables = []
    for name in ("window", "before"):
        info = VariableInfo()
        info.variable_id, info.data_type, info.data_shape = name, openvino.Type.f32, openvino.PartialShape([-1, 2, 3])
        variables.append(Variable(info))
    reads = [opset6.read_value(start, variable) for start, variable in zip(starts, variables, strict=True)]
    pasts = [opset13.gather(read, beams, numpy.array(0)) for read in reads]
    token = opset13.reshape(opset13.convert(ids, "f32"), [-1, 1, 1], False)
    column = opset13.multiply(token, opset13.constant(numpy.float32([[1], [2]])))
    joined = opset13.concat([pasts[0], column], 2)
    new = opset8.slice(joined, [1], [1 << 30], [1], [2])
    writes = [opset6.assign(new, variables[0]), opset6.assign(pasts[0], variables[1])]
    result = opset13.result(opset13.add(new, opset13.multiply(pasts[0], pasts[1])))
    return OpenVINOModel(openvino.Model([result], writes, [ids, beams], "delayed"))


@pytest.mark.parametrize("start", ["number", "numbers"])
def test_states_with_a_delayed_write(start):
    model = delayed(start)
    wanted = steps(model)
    packed, result = run_passes(model, "pack{only=linear}")
    assert result.statistics == {"caches packed": 2, "caches made": 1}
    numpy.testing.assert_allclose(steps(packed), wanted, rtol=1e-6)
    back, _ = run_passes(packed, "unpack{only=linear}")
    assert len(linear(back)) == 2
    numpy.testing.assert_allclose(steps(back), wanted, rtol=1e-6)


def test_the_cpu_plugin_fails_on_split_initial_values():
    packed, _ = run_passes(delayed("numbers"), "pack{only=linear}")
    (read,) = [op for op in packed.ov_model.get_ops() if op.get_type_name() == "ReadValue"]
    start = opset13.add(read.input_value(0), opset13.constant(numpy.float32(1)))
    read.input(0).replace_source_output(start.output(0))
    packed.mark_edited()
    steps(packed, 1)
    back, _ = run_passes(packed, "unpack{only=linear}")
    assert len(linear(back)) == 2
    reads = [op for op in back.ov_model.get_ops() if op.get_type_name() == "ReadValue"]
    (parts,) = {read.input_value(0).get_node().input_value(0).get_node().get_type_name() for read in reads}
    assert parts == "VariadicSplit"
    with pytest.raises(RuntimeError, match="MoveReadValueInputsToSubgraph"):
        steps(back, 1)


def two_states(*, beams=False, turned=False):
    """A layer with a window and a state: of which only one is reordered, or one has its batch in the middle."""
    build = builder_with_hidden_states()
    window = build.input("past_conv", ["B", 4, 3])
    shape = [4, "B", 3] if turned else ["B", 4, 3]
    state = build.input("past_ssm", shape)
    if beams:
        window = build.op("Gather", window, build.input("beam_idx", ["B"], "i64"), axis=0)
    column = build.op("MatMul", build.weight(4, 12), build.op("Transpose", "hidden", perm=[0, 2, 1]))
    joined = build.op("Concat", window, column, axis=2)
    cut = build.op("Slice", joined, build.ints(-3), build.ints(1 << 30), build.ints(2))
    update = build.op("Mul", build.op("ReduceMean", column, build.ints(2)), cut)
    update = build.op("Transpose", update, perm=[1, 0, 2]) if turned else update
    new = build.op("Add", build.op("Mul", state, build.weight(3)), update)
    build.output(build.op("Tanh", new), "logits", shape)
    build.present(cut, "present_conv", ["B", 4, 3])
    build.present(new, "present_ssm", shape)
    return build.model()


@pytest.mark.parametrize(
    ("form", "says"),
    [
        (
            {"beams": True},
            "caches past_conv and past_ssm cannot be packed: they are of different types, or reordered separately",
        ),
        (
            {"turned": True},
            "cache past_ssm cannot be packed: its size is not fixed, or its batch is not its first axis",
        ),
    ],
)
def test_states_of_different_forms_are_refused(form, says):
    with pytest.raises(UnsupportedError, match="GP387") as caught:
        run_passes(two_states(**form), "pack{only=linear}")
    assert says in caught.value.message


def test_states_of_equal_form_are_packed():
    model = two_states()
    packed, _ = run_passes(model, "pack{only=linear}")
    onnx.checker.check_model(packed.proto, full_check=True)
    assert [cache.read for cache in linear(packed)] == ["past_conv+past_ssm"]


def test_snapshots_of_states_are_refused():
    with pytest.raises(UnsupportedError, match="GP387") as caught:
        run_passes(openvino_model("qwen3_next"), "insert-snapshot,pack")
    assert "a history stores its earlier states" in caught.value.message
