import onnx
import pytest
from support.models import export, fixtures
from support.quick_cases import model_files, quick_files

from graphpass.dialects.onnx.model import OnnxModel
from graphpass.engine.manager import PassManager
from graphpass.engine.pipeline import parse
from graphpass.io import load, save
from graphpass.reports.diff import diff_models
from graphpass.reports.diff.changes import Change

#: One export of each kind: bodies, external data, decomposed and fused attention, linear states, int8 weights.
FILES = [
    file
    for file in model_files()
    if file.split("/")[0] in {"t5", "lfm2", "gpt_oss", "llama", "mamba"} and "raw" not in file
]


@pytest.mark.parametrize("file", quick_files(FILES))
def test_a_model_does_not_differ_from_itself(file):
    found = diff_models(load(fixtures() / file), load(fixtures() / file))
    assert found.same
    assert found.weights.unchanged_percent == 100
    assert found.weights.before > 0


@pytest.mark.parametrize("variant", ["onnx-genai", "ov-stateful"])
@pytest.mark.parametrize("weights", ["copy", "share"])
def test_the_place_of_weights_makes_no_difference(tmp_path, variant, weights):
    source = load(export("llama", variant))
    for file in source.path.parent.iterdir():
        if not file.is_dir():
            (tmp_path / file.name).write_bytes(file.read_bytes())
    source = load(tmp_path / source.path.name)
    save(source, tmp_path / "out" / source.path.name, weights=weights)
    assert diff_models(source, load(tmp_path / "out")).same


def test_embedded_and_external_weights_are_the_same_weights(tmp_path):
    proto = onnx.load(export("llama", "onnx") / "model.onnx")
    onnx.save(proto, tmp_path / "model.onnx", save_as_external_data=True, location="weights", size_threshold=0)
    found = diff_models(load(export("llama", "onnx")), load(tmp_path))
    assert (found.weights.unchanged_percent, found.weights.changes) == (100, ())


def edited(change) -> OnnxModel:
    model = load(export("llama", "onnx")).clone()
    change(model.proto)
    model.mark_edited()
    return model


def of_kind(proto, kind):
    return next(node for node in proto.graph.node if node.op_type == kind)


def set_axis(proto):
    concat = of_kind(proto, "Concat")
    next(given for given in concat.attribute if given.name == "axis").i = 1


def swap_inputs(proto):
    add = of_kind(proto, "Add")
    add.input[0], add.input[1] = add.input[1], add.input[0]


def set_small_constant(proto):
    tensor = next(tensor for tensor in proto.graph.initializer if tensor.dims == [64])
    tensor.raw_data = tensor.raw_data[:-1] + b"\x7f"


def swap_outputs(proto):
    outputs = list(proto.graph.output)
    del proto.graph.output[:]
    proto.graph.output.extend(reversed(outputs))


def set_input_type(proto):
    proto.graph.input[0].type.tensor_type.elem_type = onnx.TensorProto.INT32


def set_metadata(proto):
    proto.metadata_props.add(key="made by", value="a test")


def set_documentation(proto):
    proto.graph.node[0].doc_string = "new"


def set_producer(proto):
    proto.producer_version = "3"


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("change", "section", "facet"),
    [
        (set_axis, "operators", ("axis", "1")),
        (swap_inputs, "operators", None),
        (set_small_constant, "operators", None),
        (set_input_type, "inputs", ("type", "i32")),
        (set_metadata, "metadata", ("value", "a test")),
        (set_producer, "metadata", ("value", "3")),
        (swap_outputs, "other", None),
        (set_documentation, "other", None),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_changes_are_found(change, section, facet):
    found = diff_models(load(export("llama", "onnx")), edited(change))
    assert not found.same
    assert getattr(found, section)
    if facet:
        assert facet in [pair for change in getattr(found, section) for pair in change.after.items()]
    assert found.weights.changes == ()


def large(proto):
    return [tensor for tensor in proto.graph.initializer if len(tensor.raw_data) > 1024]


def test_one_bit_of_a_weight():
    def flip(proto):
        raw = bytearray(large(proto)[3].raw_data)
        raw[len(raw) // 2] ^= 1
        large(proto)[3].raw_data = bytes(raw)

    model = edited(flip)
    found = diff_models(load(export("llama", "onnx")), model).weights
    assert [set(change.after) for change in found.changes] == [{"sha256"}]
    assert found.changes[0].name == large(model.proto)[3].name
    assert found.changed_bytes == len(large(model.proto)[3].raw_data)
    assert 90 < found.unchanged_percent < 100


def test_weights_renamed_reshaped_dropped_and_added():
    def change(proto):
        first, second, third = large(proto)[:3]
        for node in proto.graph.node:
            node.input[:] = ["new name" if name == first.name else name for name in node.input]
        first.name = "new name"
        second.dims[:] = [second.dims[0] * second.dims[1], 1]
        extra = proto.graph.initializer.add()
        extra.CopyFrom(third)
        extra.name = "extra"

    before = load(export("llama", "onnx"))
    names = [tensor.name for tensor in large(before.proto)]
    after = edited(change)
    found = {change.name: change for change in diff_models(before, after).weights.changes}
    assert set(found) == {names[0], names[1], "extra"}
    assert found[names[0]].after == {"name": "new name"}
    assert found[names[1]].before["is"] == "f32 [64, 64]"
    assert found[names[1]].after == {"is": "f32 [4096, 1]"}
    assert found["extra"].before is None
    back = {change.name: change for change in diff_models(after, before).weights.changes}
    assert back["extra"].after is None


def test_from_onnx_to_openvino_names_and_weights_are_compared():
    before = load(export("llama", "onnx"))
    after = PassManager(parse("to-openvino,fuse-attention,make-stateful")).run(before).model
    found = diff_models(before, after)
    assert found.dialects == ("onnx", "openvino")
    assert not found.same
    assert (found.weights.unchanged_percent, found.weights.changes, found.metadata) == (100, (), ())
    assert ("ScaledDotProductAttention", 0, 2) in found.kinds
    assert Change("beam_idx", None, {"type": "i32", "shape": "[?]"}) in found.inputs
    assert {change.name for change in found.outputs} == {f"present.{n}.{p}" for n in (0, 1) for p in ("key", "value")}
    assert [change.before["name"] for change in found.caches] == [
        f"past_key_values.{n}.{p}" for n in (0, 1) for p in ("key", "value")
    ]
    assert all(set(change.before) == {"name", "past", "present"} for change in found.caches)


def test_another_precision_changes_weights_and_options():
    found = diff_models(load(export("llama", "ov-stateful")), load(export("llama", "ov-stateful-int8")))
    assert found.weights.unchanged_percent == 0
    assert ("is", "u8 [320, 64]") in found.weights.changes[0].after.items()
    assert "runtime_options/KV_CACHE_PRECISION" in {change.name for change in found.metadata}
