"""Find what depends on the number of past positions."""

from __future__ import annotations

import pytest
from support.loaded import exported

from graphpass.analysis.caches.masks import find_elements
from graphpass.analysis.lengths.past_order import reached


@pytest.mark.parametrize("name", ["llama/onnx", "llama/ov-stateless"])
def test_sizes_of_new_tokens_count_nothing(name: str) -> None:
    """The mask is as long as past and new tokens, ids as the new tokens; the batch is the same for both."""
    model = exported(name).clone()
    rewriter = model.rewriter()
    write = rewriter.under("sizes")
    mask, ids = (rewriter.graph.parameters[name] for name in ("attention_mask", "input_ids"))
    shape = write.op("ShapeOf", mask, label="shape")
    made = {
        "batch": write.op("Gather", shape, [0], 0, label="batch"),
        "total": write.op("Gather", shape, [1], 0, label="total"),
        "new": write.op("Gather", write.op("ShapeOf", ids, label="of_ids"), [1], 0, label="new"),
    }
    made["past"] = write.op("Subtract", made["total"], made["new"], label="past")
    made["left"] = write.op("Subtract", made["total"], made["past"], label="left")
    for label, size in made.items():
        rewriter.output(label, size, "i64", [1])
    rewriter.finish()
    graph = model.graph
    found = reached(model.analysis(find_elements), {graph.parameters["attention_mask"].node}, set())
    assert {name for name in made if graph.writes[name].index in found} == {"total", "past"}
