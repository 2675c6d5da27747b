"""Padding of encoders whose output has one entry for all tokens."""

from __future__ import annotations

import numpy
import pytest
from support.models import exporters

from graphpass.io import load
from graphpass.ir.model import Model
from graphpass.runtime import open_session
from graphpass.verify import compare
from graphpass.verify.prompts import Vocabulary

MISREAD = "left padding: the reference has other results for rows alone"


@pytest.fixture(scope="module")
def reranker() -> Model:
    return load(exporters("encoders", "bert-reranker"))


def shifted(model: Model, at: int) -> Model:
    """A copy that adds a vector to the embeddings of tokens whose mask is ``at``."""
    copy = model.clone()
    rewriter = copy.rewriter()
    embeddings = next(node.outputs[0] for node in copy.graph.nodes if node.name == "/bert/embeddings/Add")
    mask = copy.graph.parameters["attention_mask"]
    write = rewriter.under("shifted")
    counted = write.op("Equal", mask, write.constant(numpy.array(at, numpy.int64), "at"))
    chosen = write.op("Convert", write.op("Unsqueeze", counted, axes=[2]), to="f32")
    shift = write.op("Multiply", chosen, write.constant(numpy.arange(64, dtype=numpy.float32), "channels"))
    rewriter.redirect_uses(embeddings, write.op("Add", embeddings, shift))
    rewriter.finish()
    copy.mark_edited()
    return copy


def test_a_pooled_position_of_left_padding_may_differ(reranker):
    """The first position is pooled, and is padding; no result of it is defined."""
    found = compare(reranker, shifted(reranker, at=0), steps=2)
    assert found.passed, found.summary()
    assert MISREAD in found.skipped
    assert [run.description for run in found.sequences if "padded" in run.description] == [
        "batch of 3, prompts of 11, 1 and 5 tokens, padded on the right"
    ]


def test_padded_rows_are_compared(reranker):
    """Padding on the right that tokens attend to changes the pooled output of shorter rows alone."""
    copy = reranker.clone()
    rewriter = copy.rewriter()
    mask = copy.graph.parameters["attention_mask"]
    write = rewriter.under("seen")
    rewriter.redirect_uses(mask, write.op("Maximum", mask, write.constant(numpy.array(1, numpy.int64), "one")))
    rewriter.finish()
    copy.mark_edited()
    found = compare(reranker, copy, steps=2)
    assert not found.passed
    assert "padded on the right" in found.sequences[found.divergence.sequence].description


def test_prompts_have_ids_of_the_table(reranker):
    """The output has one label, and a vocabulary of that size has no other id than 0."""
    assert Vocabulary.of(open_session(reranker)).size == 320
