"""Drafts by heads on hidden states: the target's tokens, and states as recomputation gives them."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx
import pytest
from edits.subjects import model, trees
from onnx import TensorProto, helper, numpy_helper
from support.loaded import exported, run_once
from support.models import reference

import graphpass
from graphpass.dialects.onnx.model import OnnxModel
from graphpass.errors import UnsupportedError, UsageError
from graphpass.runtime import DecodeSession, open_session
from graphpass.runtime.speculative import Head, HiddenStateDraft, ModelHead, speculate

COUNT = 24
VOCABULARY = 320

TARGETS = [
    ("llama", "ov-stateful", ""),
    ("gpt2", "onnx", "add-tree-mask,"),
    ("lfm2", "ov-stateful", ""),
    pytest.param("gemma3_text", "ov-stateful", f"{trees('ov')},", marks=pytest.mark.slow),
    pytest.param("mamba", "onnx-raw", "", marks=pytest.mark.slow),
    pytest.param("qwen3_next", "ov-stateful", "", marks=pytest.mark.slow),
    pytest.param("qwen3", "onnx-genai", "", marks=pytest.mark.slow),
]


@functools.cache
def target(name: str, variant: str, passes: str) -> DecodeSession:
    return open_session(model(name, variant, f"{passes}expose-hidden-states{{layers=[0,-1]}}"))


@functools.cache
def greedy(name: str, variant: str, passes: str) -> tuple[tuple[int, ...], np.ndarray]:
    """Tokens of plain decoding, and the states [layers, n, hidden] of prompt and tokens."""
    prompt, session = reference(name)["prompt_ids"], target(name, variant, passes)
    tokens = [int(session.prefill(prompt)[0, -1].argmax())]
    found = [session.hidden_states]
    while len(tokens) < COUNT:
        tokens.append(int(session.step(tokens[-1:])[0, -1].argmax()))
        found.append(session.hidden_states)
    return tuple(tokens), np.stack([np.concatenate([one[layer][0] for one in found]) for layer in sorted(found[0])])


def random_head(hidden: int) -> Head:
    weights = np.random.default_rng(0).standard_normal((hidden, VOCABULARY), np.float32)
    return lambda tokens, states: (states @ weights + np.eye(VOCABULARY, dtype=np.float32)[tokens], states)


def fitted_head(text: Sequence[int], states: np.ndarray) -> Head:
    """Knows the text by heart: state and token after it lead to the next token and state, but for the last ones."""
    embeddings = np.random.default_rng(1).standard_normal((VOCABULARY, 64))

    def inputs(tokens: np.ndarray, features: np.ndarray) -> np.ndarray:
        return np.concatenate([features, embeddings[tokens]], axis=1)

    tokens, known = np.asarray(text), len(text) - 6
    read = inputs(tokens[1 : known + 1], states[:known])
    wanted = np.concatenate([np.eye(VOCABULARY)[tokens[2 : known + 2]], states[1 : known + 1]], axis=1)
    weights = np.linalg.pinv(read) @ wanted

    def head(tokens: np.ndarray, states: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        made = inputs(tokens, states) @ weights
        return made[:, :VOCABULARY], made[:, VOCABULARY:]

    return head


@dataclass
class Recorded:
    """A draft with a record of the states that it was shown."""

    drafter: HiddenStateDraft
    found: list[dict[int, np.ndarray]] = field(default_factory=list)

    def observe(self, first: int, states: dict[int, np.ndarray]) -> None:
        assert first == sum(len(one[0]) for one in self.found)
        self.found.append({layer: array.copy() for layer, array in states.items()})
        self.drafter.observe(first, states)

    def propose(self, history: Sequence[int]) -> Sequence[Sequence[int]]:
        return self.drafter.propose(history)


@pytest.mark.parametrize(("name", "variant", "passes"), TARGETS)
def test_tokens_are_the_greedy_ones_and_states_those_of_accepted_tokens(name: str, variant: str, passes: str) -> None:
    wanted, states = greedy(name, variant, passes)
    text = (*reference(name)["prompt_ids"], *wanted)
    both = np.concatenate(list(states), axis=-1)
    heads = {"random": (random_head(both.shape[1]), 3), "fitted": (fitted_head(text, both), 4)}
    for kind, (head, length) in heads.items():
        drafter = Recorded(HiddenStateDraft(head, length=length, width=2 if passes else 1))
        done = speculate(target(name, variant, passes), reference(name)["prompt_ids"], drafter, count=COUNT)
        assert done.tokens == wanted, kind
        assert done.target_steps + done.accepted == COUNT - 1
        assert done.drafted > 0
        if kind == "fitted":
            # It knows two thirds of the text.
            assert done.target_steps < COUNT - 8
        for place, layer in enumerate(sorted(drafter.found[0])):
            seen = np.concatenate([one[layer] for one in drafter.found])
            assert len(seen) == len(text) - 1
            np.testing.assert_allclose(seen, states[place, : len(seen)], atol=2e-3)


def model_head(outputs: int = 2) -> OnnxModel:
    """Logits of the token's embedding and the state, and their sum as the next state."""
    random = np.random.default_rng(2)
    weights = {
        "embeddings": random.standard_normal((VOCABULARY, 64), np.float32),
        "head": random.standard_normal((64, VOCABULARY), np.float32),
    }
    nodes = [
        helper.make_node("Gather", ["embeddings", "input_ids"], ["embedded"]),
        helper.make_node("Add", ["embedded", "states"], ["next_states"]),
        helper.make_node("MatMul", ["next_states", "head"], ["logits"]),
    ]
    taken = [
        helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["batch", "n"]),
        helper.make_tensor_value_info("states", TensorProto.FLOAT, ["batch", "n", 64]),
    ]
    given = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", "n", size])
        for name, size in (("logits", VOCABULARY), ("next_states", 64))
    ]
    held = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "head", taken, given[:outputs], held)
    return OnnxModel(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9))


def test_heads_may_be_models_of_either_dialect() -> None:
    session = open_session(run_once(exported("llama/ov-stateful"), "expose-hidden-states").model)
    prompt = reference("llama")["prompt_ids"]
    head = model_head()
    converted = graphpass.PassManager(graphpass.parse("to-openvino")).run(head).model
    drafted = []
    for one in (head, converted):
        done = speculate(session, prompt, HiddenStateDraft(ModelHead(one), length=2), count=COUNT)
        assert done.tokens == greedy("llama", "ov-stateful", "")[0]
        drafted.append((done.drafted, done.accepted))
    assert drafted[0] == drafted[1]


def test_other_models_are_refused_as_heads() -> None:
    with pytest.raises(
        UnsupportedError, match="expected inputs input_ids and states, outputs logits and states, got input_ids"
    ) as caught:
        ModelHead(model_head(outputs=1))
    assert caught.value.id == "GP378"


class TestHiddenStateDraft:
    """By itself: pairs of states and tokens, as a head gets them."""

    def head(self, calls: list[tuple[list[int], list[float]]], tokens: np.ndarray, states: np.ndarray) -> object:
        """The next token is the next number; its state is a tenth more."""
        calls.append((tokens.tolist(), states[:, 0].round(3).tolist()))
        return np.eye(16)[tokens + 1], states + 0.1

    def test_a_state_belongs_to_the_next_token(self) -> None:
        calls: list[tuple[list[int], list[float]]] = []
        drafter = HiddenStateDraft(lambda tokens, states: self.head(calls, tokens, states), length=3)
        drafter.observe(0, {0: np.array([[1.0], [2.0]])})
        assert drafter.propose([5, 6, 7]) == [(8,), (8, 9), (8, 9, 10)]
        assert calls == [([7], [2.0]), ([8], [2.1]), ([9], [2.2])]

    def test_context_reaches_back(self) -> None:
        calls: list[tuple[list[int], list[float]]] = []
        drafter = HiddenStateDraft(lambda tokens, states: self.head(calls, tokens, states), length=2, context=3)
        drafter.observe(0, {0: np.array([[1.0], [2.0]])})
        drafter.propose([5, 6, 7])
        drafter.observe(2, {0: np.array([[3.0], [4.0]])})
        drafter.propose([5, 6, 7, 3, 1])
        assert calls == [
            ([6, 7], [1.0, 2.0]),
            ([6, 7, 8], [1.0, 2.0, 2.1]),
            ([7, 3, 1], [2.0, 3.0, 4.0]),
            ([3, 1, 2], [3.0, 4.0, 4.1]),
        ]

    def test_layers_are_joined_in_order_and_fused(self) -> None:
        calls: list[tuple[list[int], list[float]]] = []
        drafter = HiddenStateDraft(
            lambda tokens, states: self.head(calls, tokens, states),
            length=1,
            width=2,
            fuse=lambda states: states @ np.array([[1.0], [10.0]]),
        )
        drafter.observe(0, {11: np.array([[2.0]]), 2: np.array([[1.0]])})
        assert drafter.propose([5, 6])[0] == (7,)
        assert calls == [([6], [21.0])]

    @pytest.mark.parametrize("wrong", [{"length": 0}, {"width": 0}, {"context": 0}])
    def test_drafts_of_no_tokens_are_refused(self, wrong: dict[str, int]) -> None:
        with pytest.raises(UsageError) as caught:
            HiddenStateDraft(random_head(64), **wrong)
        assert caught.value.id == "GP263"


def test_a_target_without_states_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="does not return hidden states") as caught:
        speculate(open_session(exported("gpt2/onnx")), [1, 2], HiddenStateDraft(random_head(64)), count=4)
    assert caught.value.id == "GP377"
    assert "expose-hidden-states" in caught.value.hint


def test_the_head_of_a_file(tmp_path: object) -> None:
    file = f"{tmp_path}/head.onnx"
    onnx.save(model_head().proto, file)
    logits, states = ModelHead(graphpass.load(file))(np.array([3, 4]), np.zeros((2, 64), np.float32))
    assert (logits.shape, states.shape) == ((2, VOCABULARY), (2, 64))
