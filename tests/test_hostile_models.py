"""Models that are small on disk and endless in memory or time, and files beside them: refused by an id."""

import shutil

import onnx
import pytest
from onnx import TensorProto, helper
from support.commands import in_process
from support.models import export

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.errors import ReadError
from graphpass.io import load


def of_nodes(folder, *nodes, functions=(), opset=18, initializers=()):
    """A model of ``nodes`` that make ``made`` of ``ids``."""
    ids, made = (
        helper.make_tensor_value_info(name, TensorProto.INT64, size) for name, size in (("ids", ["n"]), ("made", None))
    )
    graph = helper.make_graph(list(nodes), "g", [ids], [made], list(initializers))
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("d", 1)]
    proto = helper.make_model(graph, opset_imports=opsets, ir_version=8, functions=list(functions))
    (folder / "model.onnx").write_bytes(proto.SerializeToString())


def function(name, *called):
    names = ["x", *(f"x{place}" for place in range(1, len(called))), "y"]
    nodes = [helper.make_node(one, [names[at]], [names[at + 1]], domain="d" if one != "Abs" else "")
             for at, one in enumerate(called)]  # fmt: skip
    return helper.make_function("d", name, ["x"], ["y"], nodes, [helper.make_opsetid("", 18)])


def nested(depth):
    """A graph of an If in an If."""
    made = helper.make_node("Abs", ["ids"], ["y0"])
    graph = helper.make_graph([made], "g", [], [helper.make_tensor_value_info("y0", TensorProto.INT64, None)])
    for level in range(1, depth):
        other = helper.make_graph(
            [helper.make_node("Abs", ["ids"], [f"z{level}"])],
            "g",
            [],
            [helper.make_tensor_value_info(f"z{level}", TensorProto.INT64, None)],
        )
        node = helper.make_node("If", ["ids"], [f"y{level}"], then_branch=graph, else_branch=other)
        graph = helper.make_graph(
            [node], "g", [], [helper.make_tensor_value_info(f"y{level}", TensorProto.INT64, None)]
        )
    return graph


def test_exponentially_growing_functions_are_refused(tmp_path):
    doubling = [function(f"f{level}", f"f{level - 1}", f"f{level - 1}") for level in range(1, 40)]
    call = helper.make_node("f39", ["ids"], ["made"], domain="d")
    of_nodes(tmp_path, call, functions=[function("f0", "Abs", "Abs"), *doubling])
    with pytest.raises(ReadError, match=r"GP119: .* has \d+ nodes once its functions are expanded"):
        load(tmp_path)


def test_a_recursive_function(tmp_path):
    of_nodes(tmp_path, helper.make_node("f", ["ids"], ["made"], domain="d"), functions=[function("f", "f")])
    with pytest.raises(ReadError, match=r"GP119: .* the function 'f' calls itself"):
        load(tmp_path)


def test_functions_of_exporters_are_read(tmp_path):
    called = [function("f", "Abs", "Abs"), function("g", "f", "Abs", "f")]
    of_nodes(tmp_path, helper.make_node("g", ["ids"], ["made"], domain="d"), functions=called)
    assert not analyze_caches(load(tmp_path)).caches


@pytest.mark.parametrize("opset", [10**9, -1])
def test_operators_of_an_impossible_version(tmp_path, opset):
    of_nodes(tmp_path, helper.make_node("Abs", ["ids"], ["made"]), opset=opset)
    with pytest.raises(ReadError, match=rf"GP119: .* imports version {opset} of the operators of 'ai.onnx'"):
        load(tmp_path)


def test_bodies_nested_too_deep_are_refused(tmp_path):
    of_nodes(tmp_path, *nested(16).node, helper.make_node("Identity", ["y15"], ["made"]))
    assert load(tmp_path).inputs
    of_nodes(tmp_path, *nested(18).node, helper.make_node("Identity", ["y17"], ["made"]))
    with pytest.raises(ReadError, match=r"GP119: .* nests bodies of nodes deeper than 16"):
        load(tmp_path)


@pytest.mark.parametrize("location", ["da\0ta", "circle", "d" * 5000])
def test_external_data_at_no_path(tmp_path, location):
    (tmp_path / "circle").symlink_to("other")
    (tmp_path / "other").symlink_to("circle")
    weight = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4], data_location=TensorProto.EXTERNAL)
    weight.external_data.add(key="location", value=location)
    of_nodes(tmp_path, helper.make_node("Abs", ["ids"], ["made"]), initializers=[weight])
    with pytest.raises(ReadError, match="GP105: tensor 'w' has its data in"):
        load(tmp_path)


@pytest.mark.parametrize("encoding", ["UTF-7", "idna", "zlib", "nonsense"])
def test_an_ir_with_an_unknown_encoding(tmp_path, encoding):
    (tmp_path / "m.xml").write_text(f'<?xml version="1.0" encoding="{encoding}"?><net name="x" version="11"/>')
    with pytest.raises(ReadError, match=r"GP106: .*m\.xml declares an encoding that XML parsers cannot read"):
        load(tmp_path)


@pytest.mark.parametrize("content", ["[" * 10**5, '{"a":' * 10**5 + "1" + "}" * 10**5], ids=["cut", "whole"])
def test_a_too_deeply_nested_configuration(tmp_path, capfd, content):
    shutil.copy(export("llama", "onnx") / "model.onnx", tmp_path)
    (tmp_path / "config.json").write_text(content)
    done = in_process(capfd, "convert", tmp_path, "-o", tmp_path / "out", "--target", "ort", "--no-verify")
    assert (done.code, done.err[:12]) == (3, "error: GP116")


@pytest.mark.parametrize("note", ["[" * 10**5, "[1]", '{"a": 1}', "no JSON"], ids=["deep", "list", "flat", "text"])
def test_invalid_metadata_of_other_programs(tmp_path, note):
    model = onnx.load(export("llama", "onnx") / "model.onnx")
    model.metadata_props.add(key="graphpass.caches", value=note)
    onnx.save(model, tmp_path / "model.onnx")
    with pytest.raises(ReadError, match="GP109"):
        analyze_caches(load(tmp_path))
