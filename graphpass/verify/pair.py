"""Compare a prefill and a decode model, run as one session, with the dynamic model."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.engine.split import Split
from graphpass.errors import UnsupportedError
from graphpass.ir.model import Model
from graphpass.ir.phase import Phase
from graphpass.ir.quantizers import rounds_activations
from graphpass.runtime import open_pair, open_session
from graphpass.runtime.backends.onnxruntime_in_place import capacity_in_place
from graphpass.runtime.backends.request import QNN
from graphpass.runtime.embedding_model import let_take_ids
from graphpass.runtime.sessions.session import DecodeSession
from graphpass.verify.comparison import Comparison, Divergence, SequenceRun
from graphpass.verify.conditioning import ROUNDED_TO_F16, after_reordered_sums
from graphpass.verify.difference import OutputComparer, PooledComparer, Tolerance
from graphpass.verify.prompts import Vocabulary

#: Maximum relative difference of logits on HTP for models that round activations: HTP multiplies activations of 16 bits
#: by others in 8 bits. Measured: 0.023.
_ON_HTP = 0.03

#: Number of greedy steps after each prompt.
_STEPS = 4


def sizes_of(prefill: Model, decode: Model) -> Split:
    """Return the sizes of a pair from its metadata.

    Args:
        prefill: The model for prompts, which has the past and chunk of the prefill.
        decode: The model for steps of one token, which has the past of the decode.

    Raises:
        UnsupportedError: GP394, the two models are not a pair.
    """
    first, second = Phase.of(prefill), Phase.of(decode)
    return Split(first.past, first.length, second.past)


def compare_pair(reference: Model, prefill: Model, decode: Model, split: Split, device: str = "CPU") -> Comparison:
    """Run the models on the same tokens, and compare the last logits of each step.

    Prompts have 1 token, a chunk, a chunk minus and plus 1, and the maximum length; each is followed by greedy steps.

    Args:
        reference: The dynamic model.
        prefill: The model for prompts, as `graphpass.artifacts.split.stage_split` returns it.
        decode: The model for steps of one token.
        split: Sizes of the pair.
        device: Device of the pair, see `graphpass.runtime.open_pair`.

    Returns:
        The comparison, up to the first divergence.

    Raises:
        UnsupportedError: GP320 to GP322, a model cannot be run on this machine.
        UsageError: GP240, the runtime of the pair does not support the device.
    """
    tolerance = Tolerance.for_models(reference, prefill, decode, device=device)
    session, pair = open_session(reference), open_pair(prefill, decode, device=device)
    let_take_ids(reference, session, pair)

    def pooled(copy: Model | None) -> tuple[Comparison, float]:
        outputs, other = PooledComparer(tolerance), pair
        if copy is not None:
            other = open_session(copy)
            let_take_ids(copy, other)
        return _compare((session, other), outputs, split, room), max(outputs.shares.values(), default=0.0)

    room = _room(reference, split)
    comparison = _compare((session, pair), OutputComparer(tolerance), split, room)
    if device == QNN and rounds_activations(reference):
        comparison = after_reordered_sums(comparison, reference, pooled, (ROUNDED_TO_F16,), _ON_HTP)
    return comparison


def _compare(
    sessions: tuple[DecodeSession, DecodeSession], outputs: OutputComparer, split: Split, room: int
) -> Comparison:
    vocabulary = Vocabulary.of(sessions[0])
    runs: list[SequenceRun] = []
    divergence = None
    lengths = {1, max(split.chunk - 1, 1), split.chunk, min(split.chunk + 1, split.prompt), split.prompt}
    for number, length in enumerate(sorted({min(length, room) for length in lengths})):
        steps = min(_STEPS, room - length)
        run, divergence = _follow(number, sessions, outputs, vocabulary.prompt(length), split.chunk, steps)
        runs.append(run)
        if divergence is not None:
            break
    skipped = (f"positions from {room} on: the input's caches end there",) if room < split.capacity else ()
    return Comparison(tuple(runs), ("logits",), outputs.largest, divergence, skipped)


def _room(reference: Model, split: Split) -> int:
    """Return the number of positions that the caches of all models have room for."""
    from graphpass.dialects.onnx.model import OnnxModel

    kept = capacity_in_place(reference, analyze_caches(reference)) if isinstance(reference, OnnxModel) else None
    return split.capacity if kept is None else min(split.capacity, kept)


def _follow(
    number: int,
    sessions: tuple[DecodeSession, DecodeSession],
    outputs: OutputComparer,
    ids: tuple[int, ...],
    chunk: int,
    steps: int,
) -> tuple[SequenceRun, Divergence | None]:
    chosen: tuple[list[int], list[int]] = ([], [])
    divergence = None
    step = 0
    logits = [_prefill(session, ids, chunk)[:, -1] for session in sessions]
    while True:
        for choices, last in zip(chosen, logits, strict=True):
            choices.append(int(last.argmax()))
        divergence = outputs.compare((number, step), "logits", *_pair(logits))
        if divergence is not None or step == steps:
            break
        step += 1
        logits = [session.step([[chosen[0][-1]]])[:, -1] for session in sessions]
    description = f"prefill and decode model, prompt of {len(ids)} tokens"
    return SequenceRun(description, (ids,), step, (tuple(chosen[0]),), (tuple(chosen[1]),)), divergence


def _prefill(session: DecodeSession, ids: tuple[int, ...], chunk: int) -> NDArray[np.float32]:
    """Run a prompt at once, or in chunks if the model supports fewer new tokens.

    Returns:
        Logits of the last run, f32 ``[batch, length, vocabulary]``.

    Raises:
        UnsupportedError: GP322, the model does not run a chunk.
    """
    try:
        return session.prefill([list(ids)])
    except UnsupportedError as error:
        if error.id != "GP322" or len(ids) <= chunk:
            raise
    logits = session.prefill([list(ids[:chunk])])
    for start in range(chunk, len(ids), chunk):
        logits = session.step([list(ids[start : start + chunk])])
    return logits


def _pair(logits: list[NDArray[np.float32]]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    first, second = logits
    return first, second
