"""Embed token ids with the embedding model in a language model's folder."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import numpy as np

from graphpass.analysis.symbolic.hidden_size import hidden_size
from graphpass.errors import UnsupportedError
from graphpass.ir.values import REALS
from graphpass.model_files import models_beside
from graphpass.runtime.backends.device import Device
from graphpass.runtime.backends.request import open_request
from graphpass.runtime.sessions.inputs import numpy_type

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from graphpass.ir.model import Model
    from graphpass.ir.types import Port
    from graphpass.runtime.sessions.embeddings import Embed
    from graphpass.runtime.sessions.session import DecodeSession

_SEED = 20

#: Token ids that are multiples of it stand for images in trials and comparisons.
_VISUAL = 3


def text_embeddings(model: Model) -> Embed:
    """Return a function that maps token ids to the input embeddings of ``model``.

    The embedding model is in the same folder; see `is_embedder`. An input for features of images is fed none.

    Args:
        model: A language model with input ``inputs_embeds``, read from a file.

    Raises:
        UnsupportedError: GP325, the folder has no embedding model, or several.
        ReadError: As `graphpass.io.load`.

    Examples:
        >>> import graphpass, numpy
        >>> from graphpass.runtime import text_embeddings
        >>> from graphpass.testing import parse_model
        >>> graphpass.save(parse_model('''%ids = Parameter : i64[batch, n]
        ... %rows = Gather([[0.0, 1.0], [2.0, 3.0]], %ids) {axis=0} : f32[batch, n, 2]
        ... Result(%rows) {name=inputs_embeds}'''), "embeddings.onnx")
        >>> graphpass.save(parse_model('''%inputs_embeds = Parameter : f32[batch, n, 2]
        ... %logits = Relu(%inputs_embeds) : f32[batch, n, 2]
        ... Result(%logits) {name=logits}'''), "model.onnx")
        >>> text_embeddings(graphpass.load("model.onnx"))(numpy.array([[1, 0]])).tolist()
        [[[2.0, 3.0], [0.0, 1.0]]]
    """
    embedder = find_text_embeddings(model)
    if embedder is None:
        message = f"expected one model that embeds token ids in the folder of {model.path}, found none or several"
        raise UnsupportedError("GP325", message, "feed the session embeddings")
    return _embeddings_of(embedder)


def _embeddings_of(embedder: Model) -> Embed:
    (ids, *features), (embeddings,) = sorted(embedder.inputs, key=_is_real), embedder.outputs
    dtype = numpy_type(ids.element_type, f"input {ids.name}")
    size = (embeddings.shape or ())[-1]
    assert isinstance(size, int)
    empty = {
        port.name: np.zeros([0] * (len(port.shape or (0, 0)) - 1) + [size], numpy_type(port.element_type, port.name))
        for port in features
    }
    request = open_request(embedder, Device("CPU", exact=True, properties={}))

    def embed(tokens: NDArray[np.int64]) -> NDArray[np.float32]:
        return request.infer({ids.name: tokens.astype(dtype), **empty})[embeddings.name].astype(np.float32)

    return embed


def find_text_embeddings(model: Model) -> Model | None:
    """Return the embedding model in the folder of ``model``; ``None`` unless there is exactly one.

    Raises:
        ReadError: As `graphpass.io.load`.
    """
    hidden = hidden_size(model)
    if hidden is None:
        return None
    candidates = [other for other in model.analysis(models_beside).values() if is_embedder(other, hidden)]
    return candidates[0] if len(candidates) == 1 else None


def let_take_ids(model: Model, *sessions: DecodeSession) -> None:
    """Let sessions that require embeddings accept token ids, for trials and comparisons.

    Args:
        model: The source model. Embeddings are computed by the embedding model in its folder; if there is none, they
            are random values seeded by the id, as are states of a target that a draft reads.
        sessions: Sessions of the model, and of models converted from it.

    Raises:
        UnsupportedError: GP325, the hidden size is dynamic.
    """
    takers = [session for session in sessions if session.takes_embeddings]
    if not takers:
        return
    if all(session.state_size for session in takers):
        for session in takers:
            session.embed_with(_with_states(session.state_size))
        return
    hidden = _fixed(hidden_size(model))
    beside = find_text_embeddings(model)
    embed = seeded_embeddings(hidden) if beside is None else _embeddings_of(beside)
    for session in takers:
        session.embed_with(_with_features(embed, hidden, session.visual_levels))


def seeded_tokens(row: int | None, levels: int) -> Embed:
    """Return a function that maps token ids to random rows, seeded by the id.

    Args:
        row: Size of an embedding and its visual features; ``None`` if it is dynamic.
        levels: Number of visual features, which are 0 for two of three ids.

    Raises:
        UnsupportedError: GP325, the size is dynamic.
    """
    hidden = _fixed(row) // (1 + levels)
    return _with_features(seeded_embeddings(hidden), hidden, levels)


def _fixed(hidden: int | None) -> int:
    if hidden is None:
        message = "the last dimension of inputs_embeds is dynamic"
        raise UnsupportedError("GP325", message, "give the last dimension of inputs_embeds a fixed size")
    return hidden


def _with_features(embed: Embed, hidden: int, levels: int) -> Embed:
    """Return ``embed`` with visual features, random for every third token id and 0 for others."""
    features = seeded_embeddings(levels * hidden)

    def embed_all(ids: NDArray[np.int64]) -> NDArray[np.float32]:
        is_visual = ids % _VISUAL == 0
        return np.concatenate([embed(ids), features(ids) * is_visual[:, :, None]], axis=-1)

    return embed_all if levels else embed


def _with_states(size: int) -> Embed:
    """Return a function that maps token ids to random states, each followed by its id."""
    states = seeded_embeddings(size)
    return lambda ids: np.concatenate([states(ids), ids[:, :, None].astype(np.float32)], axis=-1)


def seeded_embeddings(hidden: int) -> Embed:
    """Return a function that maps token ids to standard normal values, seeded by the id."""

    @functools.cache
    def row(token: int) -> NDArray[np.float32]:
        return np.random.Generator(np.random.PCG64([_SEED, token])).standard_normal(hidden, np.float32)

    def embed(ids: NDArray[np.int64]) -> NDArray[np.float32]:
        return np.stack([np.stack([row(token) for token in sequence]) for sequence in ids.tolist()])

    return embed


def is_embedder(model: Model, hidden: int) -> bool:
    """Return whether ``model`` maps token ids to embeddings.

    Its inputs are ids i32 or i64 ``[batch, length]``, and optionally features of images ``[..., hidden]`` or of any
    shape. Its only output is ``[batch, length, hidden]``.

    Args:
        model: The model.
        hidden: The size of an embedding.
    """
    if len(model.outputs) != 1 or not model.inputs:
        return False
    ids, *features = sorted(model.inputs, key=_is_real)
    shape = model.outputs[0].shape or ()
    reads_ids = ids.element_type in ("i32", "i64") and len(ids.shape or ()) == 2
    adds_features = all(_is_real(port) and (port.shape or (hidden,))[-1] == hidden for port in features)
    return reads_ids and adds_features and len(shape) == 3 and shape[2] == hidden


def _is_real(port: Port) -> bool:
    return port.element_type in REALS
