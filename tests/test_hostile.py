"""Models made to harm: refused in words, with nothing read outside their folder.

tests/dialects/onnx/test_model.py has paths of external data, tests/dialects/openvino/test_model.py document types and
deep nesting.
"""

import os
import re
import resource
import shutil
from pathlib import Path

import numpy
import onnx
import openvino
import pytest
from onnx import TensorProto, helper
from support.models import export

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.analysis.symbolic.sizes import infer_sizes
from graphpass.engine.manager import PassManager
from graphpass.engine.pipeline import parse
from graphpass.errors import ReadError, UnsupportedError
from graphpass.io import load, save
from graphpass.reports.diff import diff_models


@pytest.fixture
def ir(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    for suffix in ("xml", "bin"):
        shutil.copy(export("llama", "ov-stateful") / f"openvino_model.{suffix}", folder)
    return folder / "openvino_model.xml"


def test_weights_linked_outside_of_the_folder(tmp_path, ir):
    weights = ir.with_suffix(".bin")
    weights.rename(tmp_path / "secret")
    weights.symlink_to(tmp_path / "secret")
    with pytest.raises(ReadError, match=r"GP113: .*openvino_model\.bin is a link to .*secret, outside"):
        load(ir)


def test_weights_linked_within_the_folder_or_a_download_cache(tmp_path, ir):
    weights = ir.with_suffix(".bin")
    weights.rename(ir.parent / "weights")
    weights.symlink_to("weights")
    assert load(ir).inputs
    (tmp_path / "snapshot").mkdir()
    for name, blob in (("openvino_model.xml", ir.name), ("openvino_model.bin", "weights")):
        (tmp_path / "snapshot" / name).symlink_to(ir.parent / blob)
    assert load(tmp_path / "snapshot").inputs


@pytest.mark.parametrize(
    ("old", "new", "error_id"),
    [
        (r'<net name="[^"]*"', '<!DOCTYPE net SYSTEM "file:///etc/passwd"><net name="m"', "GP106"),
        (r'<net name="[^"]*"', '<!DOCTYPE net [<!ENTITY a "b"><!ENTITY c "&a;&a;&a;">]><net name="&c;"', "GP106"),
        (r'size="81920"', 'size="99999999999999999999"', "GP107"),
        (r'offset="\d+" size="81920"', 'offset="18446744073709551600" size="81920"', "GP107"),
        (r'offset="\d+" size="81920"', 'offset="-5" size="81920"', "GP106"),
        (r'shape="320, 64"', 'shape="9223372036854775807, 9223372036854775807"', "GP106"),
        (r'shape="320, 64"', 'shape="4294967296, 4294967296"', "GP106"),
        (r'shape="320, 64"', 'shape="1000000, 1000000"', "GP106"),
        (r'variable_id="[^"]*"', "", "GP106"),
    ],
)
def test_an_ir_with_wrong_sizes_is_refused(ir, old, new, error_id):
    text = ir.read_text()
    assert re.search(old, text)
    ir.write_text(re.sub(old, new, text, count=1))
    with pytest.raises(ReadError, match=error_id):
        load(ir)


def tensor(**fields) -> onnx.ModelProto:
    proto = onnx.load(export("llama", "onnx") / "model.onnx")
    made = proto.graph.initializer.add(name="hostile")
    for name, value in fields.items():
        if isinstance(value, list):
            getattr(made, name).extend(value)
        elif name == "segment":
            made.segment.begin = value
        else:
            setattr(made, name, value)
    return proto


@pytest.mark.parametrize(
    "fields",
    [
        {"data_type": TensorProto.FLOAT, "dims": [2**40, 2**40], "raw_data": b"1234"},
        {"data_type": TensorProto.FLOAT, "dims": [-1, -4], "raw_data": bytes(16)},
        {"data_type": TensorProto.FLOAT, "dims": [2], "raw_data": bytes(9)},
        {"data_type": TensorProto.FLOAT, "dims": [2]},
        {"data_type": TensorProto.FLOAT, "dims": [2], "float_data": [1.0]},
        {"data_type": TensorProto.INT4, "dims": [3], "int32_data": [1]},
        {"data_type": TensorProto.COMPLEX64, "dims": [1], "float_data": [1.0]},
        {"data_type": TensorProto.UNDEFINED, "dims": [1], "raw_data": b"1234"},
        {"data_type": TensorProto.FLOAT, "dims": [1], "raw_data": b"1234", "segment": 1},
    ],
    ids=str,
)
def test_a_tensor_with_wrong_sizes_is_refused(tmp_path, fields):
    (tmp_path / "model.onnx").write_bytes(tensor(**fields).SerializeToString())
    with pytest.raises(ReadError, match="GP112: tensor 'hostile' of type"):
        load(tmp_path)


@pytest.mark.parametrize(
    "fields",
    [
        {"data_type": TensorProto.FLOAT, "dims": [2, 0]},
        {"data_type": TensorProto.FLOAT, "dims": [], "float_data": [1.0]},
        {"data_type": TensorProto.INT4, "dims": [3], "int32_data": [1, 2]},
        {"data_type": TensorProto.COMPLEX64, "dims": [1], "float_data": [1.0, 2.0]},
        {"data_type": TensorProto.BFLOAT16, "dims": [2], "int32_data": [1, 2]},
        {"data_type": TensorProto.STRING, "dims": [2], "string_data": [b"a", b"b"]},
    ],
    ids=str,
)
def test_tensors_with_unusual_fields_are_read(tmp_path, fields):
    (tmp_path / "model.onnx").write_bytes(tensor(**fields).SerializeToString())
    assert load(tmp_path).inputs


def small(tmp_path, *nodes, offsets=(0, 0)) -> None:
    """A model with two weights of 256 x 4 in one file."""
    weights = [
        TensorProto(name=name, data_type=TensorProto.FLOAT, dims=[256, 4], data_location=TensorProto.EXTERNAL)
        for name in ("v", "w")
    ]
    for weight, offset in zip(weights, offsets, strict=True):
        for key, value in (("location", "data"), ("offset", offset), ("length", 4096)):
            weight.external_data.add(key=key, value=str(value))
    numpy.arange(2000, dtype=numpy.float32).tofile(tmp_path / "data")
    ids = helper.make_tensor_value_info("ids", TensorProto.INT64, ["n"])
    out = helper.make_tensor_value_info("out", TensorProto.FLOAT, None)
    given = nodes or (
        helper.make_node("Gather", ["v", "ids"], ["a"]),
        helper.make_node("Gather", ["w", "ids"], ["b"]),
        helper.make_node("Add", ["a", "b"], ["out"]),
    )
    graph = helper.make_graph(list(given), "g", [ids], [out], weights)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    (tmp_path / "model.onnx").write_bytes(proto.SerializeToString())


@pytest.mark.parametrize("offsets", [(0, 0), (0, 16), (1024, 400)])
@pytest.mark.parametrize("weights", ["copy", "share"])
def test_overlapping_weights_are_kept(tmp_path, offsets, weights):
    small(tmp_path, offsets=offsets)
    model = PassManager(parse("to-openvino")).run(load(tmp_path)).model
    save(model, tmp_path / "out" / "m.xml", weights=weights)
    run = openvino.Core().compile_model(tmp_path / "out" / "m.xml", "CPU")
    data = numpy.arange(2000, dtype=numpy.float32)
    v, w = (data[offset // 4 :][:1024].reshape(256, 4) for offset in offsets)
    assert numpy.array_equal(run(numpy.array([3, 255]))[0], v[[3, 255]] + w[[3, 255]])


@pytest.mark.parametrize("length", ["1", "4000", "5000"])
def test_external_data_of_another_length(tmp_path, length):
    small(tmp_path)
    proto = onnx.load(tmp_path / "model.onnx", load_external_data=False)
    next(entry for entry in proto.graph.initializer[0].external_data if entry.key == "length").value = length
    (tmp_path / "model.onnx").write_bytes(proto.SerializeToString())
    with pytest.raises(ReadError, match=rf"GP105: tensor 'v' has its {length} bytes of data in .* require 4096"):
        load(tmp_path)


@pytest.mark.parametrize(
    "node",
    [
        helper.make_node("If", ["ids"], ["out"]),
        helper.make_node("Loop", ["ids", "ids"], ["out"]),
        helper.make_node("Constant", [], [], value=helper.make_tensor("c", TensorProto.FLOAT, [1], [1.0])),
        helper.make_node("Gather", ["v", "ids"], ["out"], domain="nowhere"),
        helper.make_node("Reshape", ["v"], ["out"]),
    ],
    ids=lambda node: f"{node.domain}{node.op_type}",
)
def test_nodes_without_inputs_or_attributes_are_refused(tmp_path, node):
    small(tmp_path, node)
    with pytest.raises(UnsupportedError, match=r"GP310: .* is not valid ONNX"):
        analyze_caches(load(tmp_path))


def _body(inputs=("i", "c"), outputs=("c",)):
    ports = [helper.make_tensor_value_info(name, TensorProto.BOOL, []) for name in (*inputs, *outputs)]
    return helper.make_graph([], "body", ports[: len(inputs)], ports[len(inputs) :])


@pytest.mark.parametrize(
    "node",
    [
        helper.make_node("If", ["ids"], ["out"], then_branch=_body((), ()), else_branch=_body((), ())),
        helper.make_node("Loop", ["", ""], ["out"], body=_body()),
        helper.make_node("Loop", ["", "", "ids"], ["out"], body=_body(outputs=("c", "i"))),
        helper.make_node("Scan", ["ids"], ["out"], body=_body(("i",), ()), num_scan_inputs=1),
        helper.make_node("Scan", ["ids"], ["out"], body=_body(("i",), ("i",)), num_scan_inputs=2**40),
    ],
    ids=["If", "Loop", "inputs of Loop", "Scan", "inputs of Scan"],
)
def test_bodies_contradicting_their_nodes(tmp_path, node):
    """ONNX's checker accepts them."""
    small(tmp_path, node)
    with pytest.raises(UnsupportedError, match=r"GP310: .* is not valid ONNX"):
        analyze_caches(load(tmp_path))


def test_a_loop_result_of_contradictory_rank(tmp_path):
    """It ended in exit 70; a carried tensor may change its rank, too."""
    ports = {name: helper.make_tensor_value_info(name, TensorProto.INT64, []) for name in "ic"}
    ports["d"] = helper.make_tensor_value_info("d", TensorProto.BOOL, [])
    nodes = [helper.make_node("Cast", ["c"], ["d"], to=TensorProto.BOOL), helper.make_node("Add", ["x", "x"], ["y"])]
    carried = [helper.make_tensor_value_info(name, TensorProto.INT64, None) for name in "xy"]
    body = helper.make_graph(nodes, "body", [ports["i"], ports["c"], carried[0]], [ports["d"], carried[1]])
    small(tmp_path, helper.make_node("Loop", ["", "", "ids"], ["out"], body=body))
    proto = onnx.load(tmp_path / "model.onnx", load_external_data=False)
    proto.graph.output[0].CopyFrom(helper.make_tensor_value_info("out", TensorProto.INT64, ["n", "n", "n"]))
    (tmp_path / "model.onnx").write_bytes(proto.SerializeToString())
    assert load(tmp_path).graph.nodes


@pytest.mark.parametrize("order", [[0, 1, 3, 2], [0, 1], [0, 0, 0], [0, 1, 2, 7]])
def test_attention_with_an_impossible_order_of_axes(tmp_path, order):
    def value(name, rank):
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n"] * rank)

    nodes = [
        helper.make_node("Transpose", ["key"], ["turned"], perm=order),
        helper.make_node("MatMul", ["query", "turned"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["shares"]),
        helper.make_node("MatMul", ["shares", "value"], ["out"]),
    ]
    inputs = [value("query", 3), value("key", 4), value("value", 3)]
    told = [value(name, 3) for name in ("turned", "scores", "shares")]
    graph = helper.make_graph(nodes, "g", inputs, [value("out", 3)], value_info=told)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    (tmp_path / "model.onnx").write_bytes(proto.SerializeToString())
    assert not analyze_caches(load(tmp_path)).of_kind("kv")
    assert load(tmp_path).analysis(infer_sizes)


@pytest.mark.parametrize(
    "place", ["producer_name", "doc_string", "graph.name", "graph.doc_string", "property", "tensor"]
)
def test_undecodable_text(tmp_path, place):
    small(tmp_path)
    proto = onnx.load(tmp_path / "model.onnx", load_external_data=False)
    if place == "property":
        proto.metadata_props.add(key="any", value="damaged")
    elif place == "tensor":
        proto.graph.initializer[0].doc_string = "damaged"
    else:
        holder, _, field = place.rpartition(".")
        setattr(getattr(proto, holder) if holder else proto, field, "damaged")
    (tmp_path / "model.onnx").write_bytes(proto.SerializeToString().replace(b"damaged", b"\xe7amaged"))
    with pytest.raises(ReadError, match=r"GP104: .*model\.onnx is damaged: a name is not UTF-8"):
        load(tmp_path)


@pytest.mark.parametrize("name", ["model.onnx", "openvino_model.xml"])
@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_a_model_path_without_a_file(tmp_path, name, kind):
    if kind == "pipe":
        os.mkfifo(tmp_path / name)
    else:
        (tmp_path / name).symlink_to("/dev/zero")
    with pytest.raises(ReadError, match=r"GP102: .* is neither a file nor a folder"):
        load(tmp_path / name)
    with pytest.raises(ReadError, match="GP103"):
        load(tmp_path)


def test_a_too_large_onnx_file_is_not_read(tmp_path):
    with (tmp_path / "model.onnx").open("wb") as stream:
        stream.truncate(2**40)
    with pytest.raises(ReadError, match=r"GP104: .* has 1099511627776 bytes, more than protobuf"):
        load(tmp_path)


def of_nodes(folder, *nodes, length="n") -> None:
    """A model that adds ``made``, which the nodes make, to its input."""
    ids, out = (
        helper.make_tensor_value_info(name, TensorProto.INT64, [size])
        for name, size in (("ids", length), ("out", None))
    )
    graph = helper.make_graph([*nodes, helper.make_node("Add", ["made", "ids"], ["out"])], "g", [ids], [out])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    (folder / "model.onnx").write_bytes(proto.SerializeToString())


def numbers(name, *values):
    return helper.make_node(
        "Constant", [], [name], value=helper.make_tensor(name, TensorProto.INT64, [len(values)], values)
    )


@pytest.mark.parametrize(
    ("nodes", "length"),
    [
        ([numbers("made", 1)], 2**40),
        ([numbers("size", 2**40), helper.make_node("ConstantOfShape", ["size"], ["made"])], "n"),
        ([numbers("one", 1), numbers("size", 2**40), helper.make_node("Tile", ["one", "size"], ["made"])], "n"),
        (
            [
                numbers("0", 1),
                *(helper.make_node("Concat", [str(i), str(i)], [str(i + 1)], axis=0) for i in range(40)),
                helper.make_node("Identity", ["40"], ["made"]),
            ],
            "n",
        ),
    ],
    ids=["declared", "filled", "repeated", "joined"],
)
def test_tensors_declared_huge_are_refused(tmp_path, nodes, length):
    of_nodes(tmp_path, *nodes, length=length)
    taken = next(
        int(line.split()[1]) for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmSize")
    )
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (taken * 1024 + 2**30, before[1]))
    try:
        assert not analyze_caches(load(tmp_path)).caches
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.mark.parametrize("held", ["nothing", "no text", "a type to come"])
def test_unreadable_constants(tmp_path, held):
    node = onnx.NodeProto(op_type="Constant", output=["made"])
    value = node.attribute.add(name="value", type=onnx.AttributeProto.TENSOR)
    if held == "no text":
        value.t.CopyFrom(TensorProto(data_type=TensorProto.STRING, dims=[1], string_data=[b"\xff"]))
    elif held == "a type to come":
        value.t.CopyFrom(TensorProto(data_type=99, dims=[1], raw_data=b"1"))
    of_nodes(tmp_path, node)
    for name in ("1", "2"):
        (tmp_path / name).mkdir()
        shutil.copy(tmp_path / "model.onnx", tmp_path / name)
    assert diff_models(load(tmp_path / "1"), load(tmp_path / "2")).same
