"""Embeddings of tokens, from the text model of the folder or from a seed."""

from __future__ import annotations

import json

import numpy as np
import pytest
from support.input_embeddings import with_input_embeddings
from support.loaded import exported
from support.models import vision, vision_onnx

import graphpass
from graphpass.runtime.embedding_model import find_text_embeddings, is_embedder, seeded_embeddings, text_embeddings
from graphpass.verify import compare


def test_embeddings_come_from_the_text_model_of_the_folder() -> None:
    model = graphpass.load(vision("llava"))
    beside = find_text_embeddings(model)
    assert beside is not None
    assert beside.path == vision("llava") / "openvino_text_embeddings_model.xml"


def test_embedding_models_that_also_read_images_are_fed_no_image() -> None:
    model = graphpass.load(vision_onnx("qwen2_5_vl"))
    beside = find_text_embeddings(model)
    assert beside is not None
    assert [port.name for port in beside.inputs] == ["input_ids", "image_features"]
    assert is_embedder(beside, 32)
    assert not is_embedder(beside, 64)
    assert not is_embedder(model, 32)
    embed, image = text_embeddings(model), json.loads((vision_onnx("qwen2_5_vl") / "reference.json").read_text())
    table = embed(np.array([image["text"]]))
    assert table.shape == (1, len(image["text"]), 32)
    np.testing.assert_array_equal(embed(np.array([image["text"][2:4]])), table[:, 2:4])


@pytest.mark.slow
def test_embeddings_without_a_text_model_come_from_a_seed() -> None:
    model, _ = with_input_embeddings(exported("llama/onnx"))
    assert find_text_embeddings(model) is None
    assert compare(model, model.clone(), steps=2, edits=True).passed
    embed = seeded_embeddings(8)
    ids = np.array([[3, 1], [1, 3]])
    np.testing.assert_array_equal(embed(ids)[0], seeded_embeddings(8)(ids)[1, ::-1])
