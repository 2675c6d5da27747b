import shutil

import numpy
import openvino
import openvino.opset13 as ops
import pytest
from dialects.openvino.small_models import llama, relu
from support.models import export, fixtures
from support.quick_cases import quick_files

from graphpass import PassManager, load, parse
from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.dialects.openvino.names import all_ops, bodies
from graphpass.errors import ReadError, UnsupportedError
from graphpass.ir.types import Port

EXPORTS = sorted(path.relative_to(fixtures()) for path in fixtures().rglob("*.xml") if "tokenizer" not in path.name)


@pytest.mark.parametrize("file", quick_files(EXPORTS), ids=str)
def test_reads_every_export(file):
    model = OpenVINOModel.load(fixtures() / file)
    digest = model.digest()
    copy = model.clone()
    assert copy.digest() == digest
    assert [op.get_friendly_name() for op in all_ops(copy.ov_model)] == [
        op.get_friendly_name() for op in all_ops(model.ov_model)
    ]
    copy.validate()
    assert OpenVINOModel.load(fixtures() / file).digest() == digest


def test_ports_have_names_shapes_and_types():
    model = llama()
    assert model.inputs[0] == Port("input_ids", (None, None), "i64")
    assert {port.name for port in model.inputs} == {"input_ids", "attention_mask", "position_ids", "beam_idx"}
    assert model.outputs == (Port("logits", (None, None, 320), "f32"),)


def test_an_unknown_rank_has_no_shape():
    x = ops.parameter(openvino.PartialShape.dynamic(), numpy.float32)
    assert OpenVINOModel(openvino.Model([ops.result(ops.relu(x))], [x])).inputs[0].shape is None


def test_edits_of_a_clone_do_not_reach_the_original():
    model = llama()
    digest = model.digest()
    copy = model.clone()
    node = next(op for op in copy.ov_model.get_ordered_ops() if op.get_type_name() == "Multiply")
    node.output(0).replace(ops.negative(node.input_value(0)).output(0))
    copy.mark_edited()
    assert copy.digest() != digest
    assert model.digest() == digest
    assert not model.edited


@pytest.mark.parametrize("edit", ["attribute", "edge", "constant", "tensor name", "variable", "rt_info", "body"])
def test_digest_sees(edit):
    model = OpenVINOModel.load(export("granitemoehybrid", "ov-stateful") / "openvino_model.xml")
    digest = model.digest()
    by_type = {op.get_type_name(): op for op in model.ov_model.get_ordered_ops()}
    if edit == "attribute":
        by_type["MatMul"].set_attribute("transpose_b", not by_type["MatMul"].get_attributes()["transpose_b"])
    elif edit == "edge":
        by_type["Multiply"].input(0).replace_source_output(by_type["Multiply"].input_value(1))
    elif edit == "constant":
        small = next(op for op in model.ov_model.get_ordered_ops() if op.get_type_name() == "Constant")
        small.output(0).replace(openvino.op.Constant(numpy.asarray(small.data + 1)).output(0))
    elif edit == "tensor name":
        model.ov_model.inputs[0].add_names({"another"})
    elif edit == "variable":
        by_type["Assign"].set_attribute("variable_id", "another")
    elif edit == "rt_info":
        model.ov_model.set_rt_info("f32", ["runtime_options", "KV_CACHE_PRECISION"])
    else:
        (body,) = bodies(by_type["Loop"])
        node = next(op for op in body.get_ordered_ops() if op.get_type_name() == "Multiply")
        node.output(0).replace(ops.add(node.input_value(0), node.input_value(1)).output(0))
    assert model.digest() != digest


def test_omitted_inputs_of_operators_have_a_digest_and_no_content():
    model = PassManager(parse("to-openvino")).run(load(export("qwen3", "onnx-genai"))).model
    omitted = [node for node in model.graph.of_op("Constant") if node.outputs[0].element_type == "dynamic"]
    assert omitted
    assert all(model.graph.constant(node.outputs[0]) is None for node in omitted)
    assert model.digest() == model.clone().digest()


def test_digest_of_strings_and_packed_types():
    def digest(*constants):
        return OpenVINOModel(openvino.Model([ops.result(constant) for constant in constants], [])).digest()

    def packed(values):
        return openvino.op.Constant(openvino.Type.u4, openvino.Shape([4]), values)

    def strings(*values):
        return openvino.op.Constant(openvino.Tensor(list(values)))

    assert digest(strings("a", "b")) != digest(strings("a", "c"))
    assert digest(packed([1, 2, 3, 4])) != digest(packed([1, 2, 3, 5]))
    assert digest(openvino.op.Constant(numpy.zeros((0, 3), numpy.float32)))


def test_validate_names_the_node():
    model = llama()
    node = next(op for op in model.ov_model.get_ordered_ops() if op.get_type_name() == "MatMul")
    node.input(1).replace_source_output(openvino.op.Constant(numpy.ones((3, 5), numpy.float32)).output(0))
    with pytest.raises(UnsupportedError) as error:
        model.validate()
    assert error.value.id == "GP310"
    assert node.get_friendly_name() in error.value.message
    assert "failed at src/" not in error.value.message
    assert "\n" not in error.value.message


def copied(tmp_path, variant="ov-stateful"):
    for suffix in (".xml", ".bin"):
        shutil.copy(export("llama", variant) / f"openvino_model{suffix}", tmp_path)
    return tmp_path / "openvino_model.xml"


def test_missing_weights_are_refused(tmp_path):
    path = copied(tmp_path)
    path.with_suffix(".bin").unlink()
    with pytest.raises(ReadError, match=r"GP107: .*openvino_model\.bin is missing"):
        OpenVINOModel.load(path)


@pytest.mark.parametrize("lost", [1, 1000])
def test_truncated_weights_are_refused(tmp_path, lost):
    path = copied(tmp_path)
    weights = path.with_suffix(".bin")
    weights.write_bytes(weights.read_bytes()[:-lost])
    with pytest.raises(
        ReadError, match=r"GP107: .*openvino_model\.bin is too short: constant '.*' of .* ends at byte \d+"
    ):
        OpenVINOModel.load(path)


def test_a_model_without_constants_needs_no_weights(tmp_path):
    openvino.serialize(relu("x"), str(tmp_path / "m.xml"), str(tmp_path / "m.bin"))
    (tmp_path / "m.bin").unlink()
    assert OpenVINOModel.load(tmp_path / "m.xml").inputs[0].name == "x"


NET = '<?xml version="1.0"?><net name="x" version="11"><layers>{}</layers><edges/></net>'


@pytest.mark.parametrize(
    ("xml", "words"),
    [
        ("", "no element found"),
        ("no xml at all", "is not XML"),
        ("<html><body/></html>", "expected the element <net>, got <html>"),
        (NET.format("").replace('"11"', '"7"'), "is an IR of the unsupported version 7"),
        (NET.format(""), "without outputs"),
        ('<!DOCTYPE net [<!ENTITY a "b">]>' + NET.format(""), "document type"),
        (NET.format('<layer id="0" name="c" type="Const"><data offset="-1" size="4"/></layer>'), "offset: '-1'"),
        (NET.format("<a>" * 200_000 + "</a>" * 200_000), "nests elements deeper than 1000"),
    ],
)
def test_damaged_xml_is_refused(tmp_path, xml, words, capfd):
    path = tmp_path / "bad.xml"
    path.write_text(xml)
    with pytest.raises(ReadError) as error:
        OpenVINOModel.load(path)
    assert error.value.id == "GP106"
    assert "bad.xml" in error.value.message
    assert words in error.value.message
    assert "Exception from" not in error.value.message
    assert capfd.readouterr().err == ""


def test_truncated_xml_is_refused(tmp_path):
    path = copied(tmp_path)
    path.write_bytes(path.read_bytes()[:20000])
    with pytest.raises(ReadError, match=r"GP106: .*openvino_model\.xml is not XML, or damaged: .*line \d+"):
        OpenVINOModel.load(path)


def test_an_unknown_operator_is_refused(tmp_path):
    path = copied(tmp_path)
    path.write_text(path.read_text().replace('type="MatMul"', 'type="Nonsense"', 1))
    with pytest.raises(ReadError, match=r"GP106: .*openvino_model\.xml .*Nonsense"):
        OpenVINOModel.load(path)


def test_operators_of_an_extension_are_refused():
    with pytest.raises(ReadError, match=r"GP106: .*openvino_tokenizer\.xml .*from unsupported opset: extension"):
        OpenVINOModel.load(export("llama", "ov-stateful") / "openvino_tokenizer.xml")
