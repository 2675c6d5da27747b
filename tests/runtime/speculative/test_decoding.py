"""Speculative decoding generates what plain greedy decoding does, whatever is drafted."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest
from edits.subjects import model, trees
from support import logits_forms
from support.loaded import onnx_model
from support.models import reference
from support.reference_tokens import greedy_tokens

from graphpass.errors import UnsupportedError, UsageError
from graphpass.runtime import DecodeSession, open_session
from graphpass.runtime.speculative import Drafter, DraftModel, DraftTree, PromptLookup, speculate

COUNT = 32

CHAINS = [
    ("llama", "ov-stateful"),
    ("qwen3", "ov-stateless"),
    ("gpt2", "onnx"),
    ("lfm2", "ov-stateful"),
    ("mamba", "onnx-raw"),
]
SLOW = [(name, "ov-stateful") for name in ("gemma3_text", "granitemoehybrid", "qwen3_next", "mamba")]


@functools.cache
def session(name: str, variant: str, use: str) -> DecodeSession:
    """A session; one for each use, since the target's and the draft model's caches differ."""
    assert use in {"target", "tree target", "draft"}
    return open_session(model(name, variant, trees(variant) if use == "tree target" else ""))


@functools.cache
def greedy(name: str, variant: str) -> tuple[int, ...]:
    """Generate one token a step without drafts; PyTorch's tokens come first."""
    wanted = reference(name)
    target = session(name, variant, "target")
    tokens = greedy_tokens(target, target.prefill(wanted["prompt_ids"]), COUNT)
    assert tokens[: len(wanted["greedy_ids"])] == wanted["greedy_ids"]
    return tuple(tokens)


@dataclass
class Noisy:
    """A session whose logits are spoilt, so that it often guesses wrong."""

    session: DecodeSession
    noise: float
    random: np.random.Generator = field(default_factory=lambda: np.random.default_rng(3))

    def align(self, history: Sequence[int]) -> np.ndarray:
        return self.session.align(history)

    def step(self, ids: object) -> np.ndarray:
        logits = self.session.step(ids)
        return logits + self.random.normal(0, self.noise, logits.shape)


@dataclass
class Recited:
    """Guesses from a list, whatever the history."""

    drafts: list[Sequence[Sequence[int]]]

    def propose(self, history: Sequence[int]) -> Sequence[Sequence[int]]:
        return self.drafts.pop(0) if self.drafts else []


def drafters(name: str, variant: str, width: int) -> dict[str, Drafter]:
    """Often right, seldom right, hardly ever right; and by looking things up."""
    draft = session(name, variant, "draft")
    other = session("qwen3" if name == "llama" else "llama", "ov-stateful", "draft")
    return {
        "somewhat noisy": DraftModel(Noisy(draft, 0.3), length=5, width=width),
        "very noisy": DraftModel(Noisy(draft, 2.0), length=3, width=width),
        "another model": DraftModel(other, length=2, width=width),
        "lookup": PromptLookup(length=4, width=width),
    }


@pytest.mark.parametrize(
    ("name", "variant"), [*CHAINS, *(pytest.param(*case, marks=pytest.mark.slow) for case in SLOW)]
)
def test_chains_generate_the_greedy_tokens(name: str, variant: str) -> None:
    target, prompt = session(name, variant, "target"), reference(name)["prompt_ids"]
    wanted = greedy(name, variant)
    for kind, drafter in drafters(name, variant, width=1).items():
        done = speculate(target, prompt, drafter, count=COUNT)
        assert done.tokens == wanted, kind
        assert done.target_steps + done.accepted == COUNT - 1
        assert 0 <= done.accepted <= done.drafted
        assert target.length == len(prompt) + COUNT - 1
    assert speculate(target, prompt, drafters(name, variant, 1)["somewhat noisy"], count=COUNT).accepted > 0


@pytest.mark.parametrize(
    ("name", "variant"),
    [
        ("llama", "ov-stateful"),
        pytest.param("qwen3", "converted", marks=pytest.mark.slow),
        ("gpt2", "onnx"),
        pytest.param("gemma3_text", "ov-stateful", marks=pytest.mark.slow),
    ],
)
def test_trees_generate_the_greedy_tokens(name: str, variant: str) -> None:
    target, prompt = session(name, variant, "tree target"), reference(name)["prompt_ids"]
    wanted = greedy(name, variant)
    for kind, drafter in drafters(name, variant, width=3).items():
        done = speculate(target, prompt, drafter, count=COUNT)
        assert done.tokens == wanted, kind
        assert done.target_steps + done.accepted == COUNT - 1
        assert target.length == len(prompt) + COUNT - 1


def test_a_later_branch_is_kept() -> None:
    wanted = greedy("llama", "ov-stateful")
    draft = Recited([[(300, 301), (wanted[1], 302), wanted[1:5]]])
    done = speculate(session("llama", "ov-stateful", "tree target"), reference("llama")["prompt_ids"], draft, count=6)
    assert done.tokens == wanted[:6]
    assert (done.target_steps, done.drafted, done.accepted) == (1, 2 + 2 + 3, 4)


@pytest.mark.parametrize(("name", "variant"), [("lfm2", "ov-stateful"), ("mamba", "onnx-raw")])
def test_linear_states_hold_no_tree(name: str, variant: str) -> None:
    target = session(name, variant, "target")
    with pytest.raises(UnsupportedError, match="one state, not one per branch") as caught:
        speculate(target, [1, 2, 3], Recited([[(4,), (5,)]]), count=8)
    assert caught.value.id == "GP371"
    assert caught.value.hint == "draft a chain"


def test_a_tree_needs_a_tree_mask() -> None:
    with pytest.raises(UnsupportedError, match="add-tree-mask") as caught:
        speculate(session("llama", "ov-stateful", "target"), [1, 2, 3], Recited([[(4,), (5,)]]), count=8)
    assert caught.value.id == "GP371"


def test_the_logits_of_all_drafts_are_needed() -> None:
    target = open_session(logits_forms.last_logits_only(onnx_model("llama")))
    with pytest.raises(UnsupportedError, match="logits of 1 of 3 positions") as caught:
        speculate(target, [1, 2, 3], Recited([[(4, 5)]]), count=8)
    assert caught.value.id == "GP375"


def test_without_drafts_every_token_costs_a_step() -> None:
    prompt = reference("llama")["prompt_ids"]
    done = speculate(session("llama", "ov-stateful", "target"), prompt, Recited([]), count=6)
    assert (done.drafted, done.accepted, done.target_steps, done.acceptance) == (0, 0, 5, 0.0)
    assert done.tokens == greedy("llama", "ov-stateful")[:6]


def test_accepted_drafts_spare_steps() -> None:
    wanted = greedy("llama", "ov-stateful")
    prompt = reference("llama")["prompt_ids"]
    draft = Recited([[wanted[1:4]], [(*wanted[5:6], 319)], [wanted[7:]]])
    done = speculate(session("llama", "ov-stateful", "target"), prompt, draft, count=12)
    assert done.tokens == wanted[:12]
    assert (done.target_steps, done.drafted, done.accepted) == (3, 3 + 2 + 4, 3 + 1 + 4)
    assert done.acceptance == 8 / 9


def test_generation_ends_after_a_stop_token() -> None:
    target, prompt = session("llama", "ov-stateful", "target"), reference("llama")["prompt_ids"]
    wanted = greedy("llama", "ov-stateful")
    end = next(place for place, token in enumerate(wanted) if token not in wanted[:place] and place > 3)
    done = speculate(target, prompt, Recited([[wanted[1:]]]), count=COUNT, stop={wanted[end]})
    assert done.tokens == wanted[: end + 1]
    assert target.length == len(prompt) + end
    assert int(target.step([wanted[end]])[0, -1].argmax()) == wanted[end + 1]


def test_one_token_needs_no_step() -> None:
    done = speculate(session("gpt2", "onnx", "target"), [3, 1, 4], PromptLookup(), count=1)
    assert (len(done.tokens), done.target_steps) == (1, 0)


def test_impossible_requests_are_refused() -> None:
    target = session("llama", "ov-stateful", "target")
    with pytest.raises(UsageError) as caught:
        speculate(target, [1, 2], PromptLookup(), count=0)
    assert caught.value.id == "GP261"
    with pytest.raises(UsageError, match="id 320, the target's vocabulary only ids below 320") as caught:
        speculate(target, [1, 2], Recited([[[320]]]), count=4)
    assert caught.value.id == "GP262"


@pytest.mark.parametrize(
    "make",
    [
        lambda: PromptLookup(length=0),
        lambda: PromptLookup(ngram=0),
        lambda: PromptLookup(width=0),
        lambda: DraftModel(session("llama", "ov-stateful", "draft"), length=0),
        lambda: DraftModel(session("llama", "ov-stateful", "draft"), width=0),
    ],
)
def test_drafts_of_no_tokens_are_refused(make: Callable[[], Drafter]) -> None:
    with pytest.raises(UsageError) as caught:
        make()
    assert caught.value.id == "GP263"


class TestPromptLookup:
    def test_continues_the_latest_occurrence_of_the_longest_run(self) -> None:
        assert PromptLookup(length=2, ngram=2).propose([1, 2, 3, 9, 2, 4, 1, 2]) == [(3, 9)]
        assert PromptLookup(length=3, ngram=1).propose([1, 2, 3, 9, 2, 4, 1, 2]) == [(4, 1, 2)]

    def test_proposes_from_several_occurrences(self) -> None:
        assert PromptLookup(length=2, width=2).propose([7, 1, 5, 7, 2, 6, 7]) == [(2, 6), (1, 5)]

    def test_new_tokens_have_no_draft(self) -> None:
        assert PromptLookup().propose([1, 2, 3]) == []
        assert PromptLookup().propose([1]) == []


class TestDraftTree:
    def test_common_prefixes_of_drafts_are_merged(self) -> None:
        tree = DraftTree.of(9, [(1, 2, 3), (1, 4), (5,), (1, 2)], depth=2)
        assert tree == DraftTree(tokens=(9, 1, 2, 4, 5), parents=(-1, 0, 1, 1, 0))
        assert not tree.is_chain
        assert DraftTree.of(9, [(1, 2, 3)], depth=8).is_chain
        assert DraftTree.of(9, [(1, 2), (3,)], depth=0) == DraftTree((9,), (-1,))

    def test_the_path_follows_the_choices(self) -> None:
        tree = DraftTree.of(9, [(1, 2), (5, 6)], depth=2)
        assert tree.path([5, 0, 0, 6, 8]) == [0, 3, 4]
        assert tree.path([7, 0, 0, 6, 8]) == [0]
        assert tree.path([5, 0, 0, 6, 8], stop={6}) == [0, 3]
