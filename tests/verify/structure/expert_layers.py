"""Layers of experts as models, whose results are compared."""

from __future__ import annotations

from typing import Any

import numpy
from onnx import helper, numpy_helper
from support.expert_graphs import experts

from graphpass.ir.model import Model

#: Weights of fewer elements are tables, which are written out.
SIZES = {"hidden": 64, "inner": 48}


def layer(form: str, router: str, columns: str = "halves", **sizes: Any) -> Model:
    """Return a layer whose result has a size of its own: one like the tokens would count as their state."""
    model = experts(form, router, columns, **(SIZES | sizes))
    graph = model.proto.graph
    graph.node[-1].output[0] = "whole"
    bounds = {"first": 0, "end": 32, "axis": 2}
    graph.initializer.extend(numpy_helper.from_array(numpy.int64([number]), name) for name, number in bounds.items())
    graph.node.append(helper.make_node("Slice", ["whole", *bounds], ["y"], "part"))
    graph.output[0].type.tensor_type.shape.dim[2].dim_value = 32
    model.mark_edited()
    return model
