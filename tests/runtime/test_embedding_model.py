"""Embeddings of tokens, from the text model of the folder or from a seed."""

from __future__ import annotations

import numpy as np
import pytest
from support.input_embeddings import with_input_embeddings
from support.loaded import exported
from support.models import vision

import graphpass
from graphpass.runtime.embedding_model import find_text_embeddings, seeded_embeddings
from graphpass.verify import compare


def test_embeddings_come_from_the_text_model_of_the_folder() -> None:
    model = graphpass.load(vision("llava"))
    beside = find_text_embeddings(model)
    assert beside is not None
    assert beside.path == vision("llava") / "openvino_text_embeddings_model.xml"


@pytest.mark.slow
def test_embeddings_without_a_text_model_come_from_a_seed() -> None:
    model, _ = with_input_embeddings(exported("llama/onnx"))
    assert find_text_embeddings(model) is None
    assert compare(model, model.clone(), steps=2, edits=True).passed
    embed = seeded_embeddings(8)
    ids = np.array([[3, 1], [1, 3]])
    np.testing.assert_array_equal(embed(ids)[0], seeded_embeddings(8)(ids)[1, ::-1])
