"""Edit one operator of a model, and compare the results by structure."""

from __future__ import annotations

from typing import Any

from onnx import NodeProto, helper

from graphpass.dialects.onnx.model import OnnxModel
from graphpass.verify.structure.proof import compare_structures
from graphpass.verify.structure_proof import StructureProof


def proof_of(reference: OnnxModel, candidate: Any) -> StructureProof:
    found = compare_structures(reference, candidate)
    assert found is not None
    return found


def with_attribute(name: str, value: float) -> Any:
    def edit(node: NodeProto) -> None:
        kept = [attribute for attribute in node.attribute if attribute.name != name]
        del node.attribute[:]
        node.attribute.extend([*kept, helper.make_attribute(name, value)])

    return edit


def edited(model: OnnxModel, op: str, edit: Any) -> OnnxModel:
    """Return a copy whose first operator ``op`` is edited."""
    copy = model.clone()
    edit(next(node for node in copy.proto.graph.node if node.op_type == op))
    return OnnxModel(copy.proto, model.path)
