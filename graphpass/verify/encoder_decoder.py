"""Compare two encoder-decoder models in lockstep."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from graphpass.errors import UnsupportedError
from graphpass.ir.model import Model
from graphpass.ir.types import Port, shape_text
from graphpass.progress import stage
from graphpass.runtime.backends.encoder_decoder import EncoderDecoderModels, EncoderDecoderSession
from graphpass.runtime.sessions.inputs import Array
from graphpass.verify.comparison import Comparison, Divergence, SequenceRun
from graphpass.verify.difference import OutputComparer, Tolerance
from graphpass.verify.prompts import Vocabulary
from graphpass.verify.request import ProofRequest
from graphpass.verify.structure.encoder_decoders import compare_parts

#: Lengths of the encoder's rows, and length of the decoder's prompt, of each sequence. Shorter rows are right-padded.
_SEQUENCES = (((5,), 1), ((9,), 4), ((7, 5), 2))


def compare_encoder_decoders(
    reference: EncoderDecoderModels,
    candidate: EncoderDecoderModels,
    *,
    steps: int = 12,
    atol: float | None = None,
    rtol: float | None = None,
) -> Comparison:
    """Compare two models: structures, then hidden states and logits on the same inputs.

    The structures of the parts are compared as `graphpass.verify.structure.encoder_decoders` describes. Operators with
    a condition on the batch size, row index or token ids that the reference lacks are a difference.

    Three sequences, each with a reset, a prefill and ``steps`` steps with the reference's greedy choice:

    - a prompt of one token after an encoder input of length 5;
    - a prompt of 4 tokens after an encoder input of length 9;
    - a batch of two prompts of 2 tokens after encoder inputs of lengths 7 and 5, right-padded.

    Args:
        reference: The reference model.
        candidate: The candidate model.
        steps: Greedy steps after each prefill.
        atol: Absolute tolerance; ``None`` for that of the models' types.
        rtol: Relative tolerance, with the same default.

    Returns:
        The comparison, up to the first divergence.

    Raises:
        UsageError: GP250, a number is below 0.
        UnsupportedError: GP320 to GP322, a part cannot be run; GP347, an encoder input has an unsupported type or
            shape.
    """
    parts = [part for models in (reference, candidate) for part in (models.encoder, models.decoder, models.first)]
    usual = Tolerance.for_models(*(part for part in parts if part is not None))
    request = ProofRequest(steps=steps, atol=atol, rtol=rtol)
    with stage("comparing structures"):
        structure = compare_parts(reference, candidate)
    comparison = _Lockstep(reference, candidate, request.tolerance(usual)).run(steps)
    comparison = replace(comparison, structure=structure)
    unlike = structure.difference(()) if structure is not None and comparison.passed else None
    return comparison if unlike is None else comparison.diverging(f"{unlike.operator} {unlike.node}", unlike.reason)


class _Lockstep:
    def __init__(self, reference: EncoderDecoderModels, candidate: EncoderDecoderModels, tolerance: Tolerance) -> None:
        self._reference, self._candidate = EncoderDecoderSession(reference), EncoderDecoderSession(candidate)
        self._outputs = OutputComparer(tolerance)

    def run(self, steps: int) -> Comparison:
        reference = self._reference
        random = np.random.Generator(np.random.PCG64(20))
        reference.start(_feeds(reference.models.encoder, (1,), random, 1))
        vocabulary = Vocabulary(reference.step(np.zeros((1, 1), np.int64)).shape[-1])
        runs: list[SequenceRun] = []
        divergence = None
        for number, (lengths, length) in enumerate(_SEQUENCES):
            feeds = _feeds(reference.models.encoder, lengths, random, vocabulary.size)
            ids = np.array([vocabulary.prompt(length) for _ in lengths], np.int64)
            run, divergence = self._follow(number, feeds, ids, steps)
            runs.append(run)
            if divergence is not None:
                break
        return Comparison(tuple(runs), ("last_hidden_state", "logits"), self._outputs.largest, divergence, ())

    def _follow(
        self, sequence: int, feeds: dict[str, Array], ids: NDArray[np.int64], steps: int
    ) -> tuple[SequenceRun, Divergence | None]:
        prompts = ids
        chosen: list[NDArray[np.int64]] = []
        others: list[NDArray[np.int64]] = []
        hidden = self._reference.start(feeds), self._candidate.start(feeds)
        counts = feeds["attention_mask"] != 0 if "attention_mask" in feeds else None
        divergence = self._outputs.compare((sequence, 0), "last_hidden_state", *hidden, counts)
        step = 0
        while divergence is None and step <= steps:
            logits = self._reference.step(ids), self._candidate.step(ids)
            chosen.append(logits[0][:, -1].argmax(-1))
            others.append(logits[1][:, -1].argmax(-1))
            divergence = self._outputs.compare((sequence, step), "logits", *logits)
            ids = chosen[-1][:, None]
            step += 1
        described = f"{'batch of 2, ' if len(prompts) > 1 else ''}prompt of {prompts.shape[1]} tokens after an encoder"
        run = SequenceRun(
            described, tuple(map(tuple, prompts.tolist())), max(step - 1, 0), _rows(chosen), _rows(others)
        )
        return run, divergence


def _rows(steps: list[NDArray[np.int64]]) -> tuple[tuple[int, ...], ...]:
    return tuple(map(tuple, np.stack(steps, 1).tolist())) if steps else ()


def _feeds(encoder: Model, lengths: tuple[int, ...], random: np.random.Generator, tokens: int) -> dict[str, Array]:
    return {port.name: _made_up(port, lengths, random, tokens) for port in encoder.inputs}


def _made_up(port: Port, lengths: tuple[int, ...], random: np.random.Generator, tokens: int) -> Array:
    shape = len(lengths), max(lengths)
    if port.name == "attention_mask":
        return (np.arange(shape[1]) < np.array(lengths)[:, None]).astype(np.int64)
    if port.name == "input_ids":
        return random.integers(0, tokens, shape)
    sizes = [size for size in (port.shape or (None, None))[1:] if isinstance(size, int)]
    if port.element_type not in {"f16", "f32"} or len(sizes) + 1 != len(port.shape or ()):
        message = f"cannot generate input {port.name} {shape_text(port.shape)} of type {port.element_type}"
        raise UnsupportedError("GP347", message)
    values: Array = random.standard_normal([shape[0], *sizes]).astype(np.float32)
    return values.astype(np.float16) if port.element_type == "f16" else values
