"""Large constants are identified by their bytes."""

from __future__ import annotations

import numpy
from verify.structure.composed_constants import FIRST, RANDOM, holding

from graphpass.verify.structure import weights
from graphpass.verify.structure.weights import WeightDigests


def test_weights_with_equal_bytes_are_not_read_by_value(monkeypatch):
    matrix = RANDOM.standard_normal((96, 64), numpy.float32)
    models = holding(first=matrix, other=FIRST), holding(second=matrix.copy(), changed=FIRST + 1)
    monkeypatch.setattr(weights, "_weight_of", lambda _graph, value: value.name)
    digests = WeightDigests(models)
    known = {
        node.name: digests.of(model.graph, node.outputs[0])
        for model in models
        for node in model.graph.of_op("Constant")
    }
    assert known["first"] == known["second"] != known["other"]
    assert known["changed"] == "changed"
