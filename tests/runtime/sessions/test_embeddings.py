"""Sessions of models that take embeddings, against the same models with ids, and against recomputation."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import numpy as np
import openvino
import pytest
from support.decode import EXACT
from support.input_embeddings import with_input_embeddings
from support.loaded import exported
from support.models import vision

import graphpass
from graphpass.engine.manager import PassManager
from graphpass.engine.pipeline import parse
from graphpass.errors import ReadError, UnsupportedError, UsageError
from graphpass.runtime import open_pair, open_session, text_embeddings
from graphpass.runtime.sessions.embeddings import Embeddings

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

#: Growing caches in two runtimes, and a hybrid, which feeds tokens again.
MODELS = [
    ("llama", "onnx"),
    ("lfm2", "ov-stateful"),
    pytest.param("qwen3", "ov-stateless", marks=pytest.mark.slow),
    pytest.param("llama", "onnx-genai", marks=pytest.mark.slow),
    pytest.param("llama", "onnx-nocache", marks=pytest.mark.slow),
    pytest.param("qwen3_next", "ov-stateful", marks=pytest.mark.slow),
]

#: Positions of two words, an image of 2 x 3 patches, and three words.
IMAGE = np.array(
    [[[0, 1, 2, 2, 2, 2, 2, 2, 5, 6, 7]], [[0, 1, 2, 2, 2, 3, 3, 3, 5, 6, 7]], [[0, 1, 2, 3, 4, 2, 3, 4, 5, 6, 7]]]
)


@functools.cache
def language_model(name: str) -> graphpass.Model:
    return graphpass.load(vision(name))


def rows(*shape: int, seed: int = 0) -> NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal((*shape, 32)).astype(np.float32)


class Both:
    """The same calls on a model of ids, and on one that gets their embeddings."""

    def __init__(self, name: str, variant: str) -> None:
        model = exported(f"{name}/{variant}")
        embedded, self._table = with_input_embeddings(model)
        self.sessions = open_session(model), open_session(embedded)

    def feed(self, method: str, ids: Any, *more: Any) -> NDArray[Any]:
        """Feed both, and return what is fed after an `align`."""
        found = [
            getattr(session, method)(fed, *more)
            for session, fed in zip(self.sessions, (ids, self._table[ids]), strict=True)
        ]
        if method == "align":
            np.testing.assert_array_equal(found[1], self._table[found[0]])
        else:
            np.testing.assert_array_equal(found[0], found[1])
        return found[0]

    def edit(self, method: str, *given: Any) -> None:
        for session in self.sessions:
            getattr(session, method)(*given)


@pytest.mark.parametrize(("name", "variant"), MODELS)
def test_embeddings_are_edited_as_ids_are(name: str, variant: str) -> None:
    both = Both(name, variant)
    both.feed("prefill", [3, 1, 4, 1, 5, 9, 2])
    both.feed("step", [[6, 5, 3]])
    both.edit("trim", 2)
    both.feed("step", [8])
    both.edit("rewind", 4)
    both.feed("step", [[7]])
    left = both.feed("align", [3, 1, 4, 1, 7, 2, 6])
    assert left.tolist() == [[2, 6]]
    both.feed("step", left)
    both.edit("select", [0, 0])
    both.feed("step", [[5], [8]])
    assert both.feed("align", [[9, 9, 9], [9, 9, 8]]).shape == (2, 3)
    assert [session.length for session in both.sessions] == [0, 0]


@pytest.mark.parametrize("name", ["qwen2_vl", "llava"])
class TestLanguageModelsOfVision:
    def test_prompts_at_once_and_in_parts_are_the_same(self, name: str) -> None:
        session, prompt = open_session(language_model(name)), rows(1, 9)
        whole = session.prefill(prompt).copy()
        session.prefill(prompt[0, :5])
        session.step(prompt[:, 5])
        np.testing.assert_allclose(session.step(prompt[:, 6:]), whole[:, 6:], atol=1e-4)
        session.trim(4)
        np.testing.assert_allclose(session.step(prompt[:, 5:]), whole[:, 5:], atol=1e-4)

    def test_ids_are_embedded_by_the_text_model(self, name: str) -> None:
        session = open_session(language_model(name))
        embed = text_embeddings(language_model(name))
        ids = np.array([[5, 9, 17, 2]])
        expected = session.prefill(embed(ids)).copy()
        with pytest.raises(UsageError) as caught:
            session.prefill(ids)
        assert caught.value.id == "GP241"
        session.embed_with(embed)
        np.testing.assert_array_equal(session.prefill(ids), expected)
        assert session.align([5, 9, 17, 3]).tolist() == [[3]]


class TestImages:
    def test_a_prompt_with_an_image_can_be_cut_anywhere(self) -> None:
        session, prompt = open_session(language_model("qwen2_vl")), rows(1, 11)
        whole = session.prefill(prompt, position_ids=IMAGE).copy()
        text = session.prefill(prompt).copy()
        assert np.abs(whole - text)[:, 4:].max() > 0.01
        for cut in (3, 8, 10):
            session.prefill(prompt[:, :cut], position_ids=IMAGE[..., :cut])
            session.forward(prompt[:, cut:], position_ids=IMAGE[..., cut:])
            np.testing.assert_allclose(session.logits, whole[:, cut:], atol=1e-4)

    def test_text_continues_after_the_largest_position(self) -> None:
        session, prompt = open_session(language_model("qwen2_vl")), rows(1, 11)
        whole = session.prefill(prompt, position_ids=IMAGE).copy()
        session.prefill(prompt[:, :8], position_ids=IMAGE[..., :8])
        np.testing.assert_allclose(session.step(prompt[:, 8:]), whole[:, 8:], atol=1e-4)
        session.trim(1)
        np.testing.assert_allclose(session.step(prompt[:, 10]), whole[:, 10:], atol=1e-4)

    def test_a_prefix_is_known_by_its_embeddings_and_positions(self) -> None:
        session, prompt = open_session(language_model("qwen2_vl")), rows(1, 11)
        session.prefill(prompt, position_ids=IMAGE)
        other = prompt.copy()
        other[0, 9, 0] = np.nextafter(other[0, 9, 0], 1)
        left = session.align(other, IMAGE)
        assert (session.length, left.shape) == (9, (1, 2, 32))
        session.forward(left, position_ids=IMAGE[..., 9:])
        expected = open_session(language_model("qwen2_vl")).prefill(other, position_ids=IMAGE)
        np.testing.assert_allclose(session.logits, expected[:, 9:], atol=1e-4)
        # As text the image has other positions.
        assert session.align(other).shape == (1, 11 - 3, 32)

    def test_beams_keep_their_positions(self) -> None:
        session, prompt = open_session(language_model("qwen2_vl")), rows(2, 11)
        positions = np.concatenate([IMAGE, np.broadcast_to(np.arange(11), IMAGE.shape)], axis=1)
        session.prefill(prompt, position_ids=positions)
        session.select([1, 0])
        new = rows(2, 1, seed=1)
        got = session.step(new).copy()
        assert session.prefill(prompt[[1, 0]], position_ids=positions[:, [1, 0]]) is not None
        np.testing.assert_allclose(got, session.step(new), atol=1e-4)


class TestVisualFeatures:
    """Qwen3-VL adds features of images to hidden states after its first layers."""

    def test_features_follow_the_embedding_in_a_row(self) -> None:
        model = language_model("qwen3_vl")
        session, prompt = open_session(model), rows(2, 6)
        assert session.visual_levels == 1
        features = rows(2, 6, seed=1)
        features[0, [0, 5]] = features[1, 1:] = 0
        logits = session.prefill(np.concatenate([prompt, features], axis=-1))
        feeds = {
            "inputs_embeds": prompt,
            "attention_mask": np.ones((2, 6), np.int64),
            "position_ids": np.broadcast_to(np.arange(6), (3, 2, 6)).copy(),
            "visual_pos_masks": features.any(axis=-1),
            "deepstack_visual_embeds": features[features.any(axis=-1)][None],
            "beam_idx": np.arange(2, dtype=np.int32),
        }
        request = openvino.compile_model(model.ov_model, "CPU", EXACT).create_infer_request()
        request.infer(feeds)
        np.testing.assert_allclose(logits, request.get_tensor("logits").data, atol=1e-5)

    def test_rows_without_features_are_text(self) -> None:
        session, prompt = open_session(language_model("qwen3_vl")), rows(1, 7)
        text = session.prefill(prompt).copy()
        np.testing.assert_array_equal(session.prefill(np.concatenate([prompt, 0 * prompt], axis=-1)), text)

    def test_tokens_of_an_image_are_fed_again_with_their_features(self) -> None:
        session, prompt = open_session(language_model("qwen3_vl")), rows(1, 7)
        whole = np.concatenate([prompt, rows(1, 7, seed=1)], axis=-1)
        expected = session.prefill(whole).copy()
        session.prefill(whole[:, :5])
        left = session.align(whole)
        assert left.shape == (1, 2, 64)
        np.testing.assert_allclose(session.step(left), expected[:, 5:], atol=1e-4)
        assert session.align(np.concatenate([prompt, 0 * prompt], axis=-1)).shape == (1, 7, 64)


def test_a_saved_state_keeps_embeddings_and_positions(tmp_path: Path) -> None:
    session, prompt, path = open_session(language_model("qwen2_vl")), rows(1, 11), tmp_path / "prefix"
    session.prefill(prompt, position_ids=IMAGE)
    session.save(path)
    other = open_session(language_model("qwen2_vl"), state=path)
    assert other.align(np.concatenate([prompt, prompt[:, :1]], axis=1), _longer(IMAGE)).shape == (1, 1, 32)
    new = rows(1, 1, seed=1)
    np.testing.assert_array_equal(other.step(new), session.step(new))


def _longer(positions: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.concatenate([positions, positions[..., -1:] + 1], axis=-1)


def test_a_damaged_state_is_refused(tmp_path: Path) -> None:
    from safetensors import safe_open
    from safetensors.numpy import load_file, save_file

    session, path = open_session(language_model("llava")), tmp_path / "prefix"
    session.prefill(rows(1, 5))
    session.save(path)
    tensors = load_file(path)
    tensors["embeddings"][0, 2, 3] += 1
    with safe_open(path, framework="np") as file:
        metadata = file.metadata()
    save_file(tensors, path, metadata)
    with pytest.raises(ReadError) as caught:
        session.load(path)
    assert caught.value.id == "GP117"
    assert session.length == 5


def test_embeddings_without_a_slot_are_dropped() -> None:
    embeddings = Embeddings(32)
    prompts = [embeddings.number(rows(1, 600, seed=seed)) for seed in range(3)]
    embeddings.keep(lambda: [prompts[0], prompts[2]])
    np.testing.assert_array_equal(embeddings.of(prompts[2]), rows(1, 600, seed=2))
    with pytest.raises(KeyError):
        embeddings.of(prompts[1])


def test_models_of_ids_have_no_text_embeddings() -> None:
    with pytest.raises(UnsupportedError) as refused:
        text_embeddings(exported("llama/onnx"))
    assert refused.value.id == "GP325"


@pytest.mark.slow
@pytest.mark.parametrize("length", [3, 8, 11])
def test_a_pair_of_static_shapes_supports_images(length: int) -> None:
    model = language_model("qwen2_vl")
    passes = (f"make-stateless,make-static{{length={part}}}" for part in ("8,past=16", "1,past=24"))
    pair = open_pair(*(PassManager(parse(each)).run(model).model for each in passes))
    session, prompt = open_session(model), rows(1, length)
    for each in (pair, session):
        each.prefill(prompt, position_ids=IMAGE[..., :length])
    np.testing.assert_allclose(pair.logits[:, -1], session.logits[:, -1], atol=1e-4)
    np.testing.assert_allclose(pair.step(prompt[:, 0])[:, -1], session.step(prompt[:, 0])[:, -1], atol=1e-4)
