"""Record the cache contents and logits of a model on a few prompts."""

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

#: Lengths of the default prompts, in tokens. The longest and its steps fit into the 128 positions of small models.
_LENGTHS = (5, 11, 96)


@dataclass(frozen=True, slots=True, eq=False)
class CacheSample:
    """Logits and cache contents of a model on prompts followed by greedy steps.

    Attributes:
        prompts: Token ids of each prompt.
        chosen: Token ids of the greedy steps after each prompt.
        logits: f32 ``[tokens, vocabulary]`` for each prompt and its steps.
        contents: Cache contents ``[heads, positions, head_dim]`` by the name of the past, with the positions of all
            prompts concatenated.
    """

    prompts: tuple[tuple[int, ...], ...]
    chosen: tuple[tuple[int, ...], ...]
    logits: tuple[Array, ...]
    contents: dict[str, Array]


def opened_on_ids(model: Model) -> DecodeSession:
    """Open a session that accepts token ids.

    Returns:
        The session, with random embeddings if no model in the folder computes them.

    Raises:
        GraphpassError: As `open_session` and `let_take_ids`.
    """
    from graphpass.runtime import open_session
    from graphpass.runtime.embedding_model import let_take_ids

    session = open_session(model)
    let_take_ids(model, session)
    return session


def usual_prompts(session: DecodeSession) -> list[tuple[int, ...]]:
    """Return three prompts of pseudo-random ids."""
    vocabulary = Vocabulary.of(session)
    return [vocabulary.prompt(length) for length in _LENGTHS]


def sample_caches(session: DecodeSession, prompts: Sequence[tuple[int, ...]]) -> CacheSample:
    """Run prompts, each after a reset and followed by 16 greedy steps.

    Args:
        session: A session that accepts token ids; all rows of a fixed batch run the same prompt.
        prompts: Token ids of each prompt.

    Returns:
        Tokens and logits by prompt, and the contents of caches after the steps.

    Raises:
        GraphpassError: As `DecodeSession.forward`.
    """
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
    """Return the logits of another session on the tokens of a sample, as `CacheSample.logits`.

    Args:
        session: A session that accepts token ids; it is reset before each prompt.
        sample: Prompts and the tokens that are fed after each, in place of the session's own choices.

    Raises:
        GraphpassError: As `DecodeSession.forward`.
    """
    logits = []
    for prompt, tokens in zip(sample.prompts, sample.chosen, strict=True):
        results = [session.prefill(_rows(session, prompt))[0]]
        results += [session.step(_rows(session, [token]))[0] for token in tokens]
        logits.append(np.concatenate(results))
    return tuple(logits)


def loss_in_words(sample: CacheSample, after: tuple[Array, ...], bits: int) -> str:
    """Return a sentence on the change of the logits of ``sample`` by rounding.

    Args:
        sample: The logits before rounding.
        after: The logits after rounding, as `replayed` returns them.
        bits: Number of bits that caches are rounded to.
    """
    before, now = (np.concatenate(parts).astype(np.float32) for parts in (sample.logits, after))
    largest, spread = float(np.abs(before - now).max()), float(before.std())
    same = int((before.argmax(-1) == now.argmax(-1)).sum())
    return (
        f"{bits} bits change logits by at most {largest:.3g}, with a standard deviation of {spread:.3g}; the most "
        f"likely token is unchanged at {same} of {len(before)} positions"
    )


def _rows(session: DecodeSession, tokens: Sequence[int]) -> list[list[int]]:
    return [list(tokens)] * (session.fixed_batch or 1)
