"""The graphsurgeon view of an ONNX model: nothing is lost, and edits reach the file as they were made."""

import numpy
import onnx
import onnx_graphsurgeon as gs
import pytest
from dialects.onnx.every_field import content, initializer, model_with_every_field
from onnx import numpy_helper
from support.models import export, fixtures

from graphpass import PassManager, load, parse
from graphpass.dialects.onnx.model import OnnxModel


@pytest.mark.parametrize(
    "file", sorted(fixtures().glob("*/onnx*/*.onnx")), ids=lambda file: f"{file.parent.parent.name}-{file.stem}"
)
def test_a_fixture_comes_back_identical(file):
    model = load(file)
    before = content(model.proto)
    with model.graphsurgeon() as graph:
        assert len(graph.nodes) == len(model.proto.graph.node)
    assert content(model.proto) == before
    assert not model.edited


@pytest.mark.parametrize("external", [False, True])
def test_fields_dropped_by_graphsurgeon_are_restored(tmp_path, external):
    proto = model_with_every_field(tmp_path if external else None)
    model, before = OnnxModel(proto, tmp_path / "model.onnx"), content(proto)
    with model.graphsurgeon() as graph:
        for tensor in graph.tensors().values():
            if isinstance(tensor, gs.Constant) and tensor.name != "sparse":
                _ = tensor.values  # what is looked at is not changed by that
    assert content(proto) == before
    # And it is a model that shows it: its own round trip drops much of this.
    again = gs.export_onnx(gs.import_onnx(load_without(proto, "If", "Mine")))
    assert not again.metadata_props
    assert not again.doc_string


def load_without(proto, *ops):
    """Copy a model without operators on which graphsurgeon's own importer fails."""
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    for node in [node for node in copy.graph.node if node.op_type in ops]:
        copy.graph.node.remove(node)
    return copy


def test_a_failed_edit_leaves_the_model():
    proto = model_with_every_field()
    before = content(proto)

    def edit():
        with OnnxModel(proto).graphsurgeon() as graph:
            graph.nodes.clear()
            raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        edit()
    assert content(proto) == before


def test_external_values_are_read_from_their_file(tmp_path, monkeypatch):
    proto = model_with_every_field(tmp_path)
    monkeypatch.chdir("/")
    with OnnxModel(proto, tmp_path / "model.onnx").graphsurgeon() as graph:
        assert graph.tensors()["w"].values.tolist() == [0, 1, 2, 3]
        graph.tensors()["w"].values = numpy.ones(4, numpy.float32)
    held = initializer(proto, "w")
    assert held.data_location == onnx.TensorProto.DEFAULT
    assert not held.external_data
    assert numpy_helper.to_array(held).tolist() == [1, 1, 1, 1]


def test_dead_nodes_are_dropped_without_comparing_nodes(monkeypatch):
    """graphsurgeon compares nodes by all that they hold: time would grow as the square of a model's depth."""
    compared = []
    monkeypatch.setattr(gs.Node, "__eq__", lambda one, other: compared.append(one.name) or one is other)
    PassManager(parse("static-cache{capacity=32}")).run(load(export("llama_12l", "onnx")))
    assert compared == []
