"""The pass `unroll-loops`: numbers of iterations that are known and few."""

import pytest
from dialects.onnx.looping_models import loop, scan

import graphpass


@pytest.mark.parametrize(
    ("source", "pipeline", "loops"),
    [
        (loop(), "unroll-loops", 0),
        (loop(), "unroll-loops{most=3}", 0),
        (loop(), "unroll-loops{most=2}", 1),
        (loop("many"), "unroll-loops", 1),
        (loop("many"), "unroll-loops{most=65}", 0),
        (scan(0), "unroll-loops{most=3}", 0),
        (scan(0), "unroll-loops{most=2}", 1),
    ],
)
def test_loops_of_few_iterations_are_unrolled(source, pipeline, loops):
    result = graphpass.PassManager(graphpass.parse(pipeline)).run(source)
    assert len(list(result.model.graph.of_op("Loop", "Scan"))) == loops
    assert result.records[0].result.statistics == ({} if loops else {"loops": 1})
