"""Models that no runtime runs: they are different, or refused with an id."""

import contextlib

import pytest
from support.loaded import converted, exported

from graphpass.errors import UnsupportedError
from graphpass.verify import compare_within


def with_operand(model, name, port, numbers):
    """A copy whose node has other numbers as an operand."""
    mutant = model.clone()
    rewriter = mutant.rewriter()
    node = next(node for node in mutant.graph.nodes if node.name == name)
    rewriter.redirect(node, port, rewriter.under("fault").constant(numbers))
    rewriter.finish()
    mutant.mark_edited()
    return mutant


CASES = (
    ("ort", "attention/Unsqueeze", 1, [2, 2]),
    ("ort", "attention/Unsqueeze", 1, [1, 9]),
    ("ort", "lengths/total", 2, [1]),
    ("cpu", "/model/Gather_1", 1, 4),
)


@pytest.mark.parametrize(("target", "node", "port", "numbers"), CASES)
def test_malformed_models_are_different(target, node, port, numbers):
    reference = exported("llama/onnx")
    mutant = with_operand(converted(reference, target).model, node, port, numbers)
    with contextlib.suppress(UnsupportedError):
        assert not compare_within(reference, mutant, steps=1).passed
