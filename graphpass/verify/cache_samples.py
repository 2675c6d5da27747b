"""Run a model on a few prompts, and keep what its caches hold then."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from graphpass.verify.prompts import Vocabulary

if TYPE_CHECKING:
    from graphpass.ir.model import Model
    from graphpass.runtime.sessions.inputs import Array
    from graphpass.runtime.sessions.session import DecodeSession

#: Greedy steps after each prompt.
_STEPS = 16

#: Tokens of the usual prompts; with the steps after them, the longest fits into the 128 positions of small models.
_LENGTHS = (5, 11, 96)


@dataclass(frozen=True, slots=True, eq=False)
class CacheSample:
    """Holds what a model did on a few prompts, followed by greedy steps.

    Attributes:
        prompts: The prompts.
        chosen: Tokens of the steps after each.
        logits: f32 ``[tokens, vocabulary]`` of each.
        contents: By name of the past, ``[heads, positions of all, head_dim]``.
    """

    prompts: tuple[tuple[int, ...], ...]
    chosen: tuple[tuple[int, ...], ...]
    logits: tuple[Array, ...]
    contents: dict[str, Array]


def opened_on_ids(model: Model) -> DecodeSession:
    """Open a session that takes token ids; raises as `open_session` and `let_take_ids`."""
    from graphpass.runtime import open_session
    from graphpass.runtime.embedding_model import let_take_ids

    session = open_session(model)
    let_take_ids(model, session)
    return session


def usual_prompts(session: DecodeSession) -> list[tuple[int, ...]]:
    """Return three prompts of arbitrary ids."""
    vocabulary = Vocabulary.of(session)
    return [vocabulary.prompt(length) for length in _LENGTHS]


def sample_caches(session: DecodeSession, prompts: Sequence[tuple[int, ...]]) -> CacheSample:
    """Feed ``prompts`` one after another, each followed by greedy steps; raises as `DecodeSession.forward`."""
    chosen, logits = [], []
    by_name: dict[str, list[Array]] = {}
    for prompt in prompts:
        results = [session.prefill(_rows(session, prompt))[0]]
        tokens: list[int] = []
        for _ in range(_STEPS):
            tokens.append(int(results[-1][-1].argmax()))
            results.append(session.step(_rows(session, tokens[-1:]))[0])
        chosen.append(tuple(tokens))
        logits.append(np.concatenate(results))
        for name, content in session.contents().items():
            by_name.setdefault(name, []).append(content[0])
    contents = {name: np.concatenate(parts, axis=1) for name, parts in by_name.items()}
    return CacheSample(tuple(prompts), tuple(chosen), tuple(logits), contents)


def replayed(session: DecodeSession, sample: CacheSample) -> tuple[Array, ...]:
    """Return the logits of another session on the tokens of ``sample``; raises as `DecodeSession.forward`."""
    logits = []
    for prompt, tokens in zip(sample.prompts, sample.chosen, strict=True):
        results = [session.prefill(_rows(session, prompt))[0]]
        results += [session.step(_rows(session, [token]))[0] for token in tokens]
        logits.append(np.concatenate(results))
    return tuple(logits)


def loss_in_words(sample: CacheSample, after: tuple[Array, ...], bits: int) -> str:
    """Return how far rounding to ``bits`` bits moved the logits of ``sample``."""
    before, now = (np.concatenate(parts).astype(np.float32) for parts in (sample.logits, after))
    largest, spread = float(np.abs(before - now).max()), float(before.std())
    same = int((before.argmax(-1) == now.argmax(-1)).sum())
    return (
        f"{bits} bits move logits by {largest:.3g} at most, whose standard deviation is {spread:.3g}; the likeliest "
        f"token stays at {same} of {len(before)} positions"
    )


def _rows(session: DecodeSession, tokens: Sequence[int]) -> list[list[int]]:
    return [list(tokens)] * (session.fixed_batch or 1)
