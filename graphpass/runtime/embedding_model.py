"""Embed token ids with the model that stands beside a language model."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import numpy as np

from graphpass.errors import UnsupportedError
from graphpass.io import load, models_in
from graphpass.ir.inputs import EMBEDDINGS
from graphpass.runtime.backends.device import Device
from graphpass.runtime.backends.request import open_request
from graphpass.runtime.sessions.inputs import numpy_type

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from graphpass.ir.model import Model
    from graphpass.runtime.sessions.embeddings import Embed
    from graphpass.runtime.sessions.session import DecodeSession

_SEED = 20


def text_embeddings(model: Model) -> Embed:
    """Return a function that maps token ids to the embeddings that ``model`` takes.

    The model that computes it stands in the same folder: it takes ids ``[batch, length]`` alone, and gives as much a
    token as ``model`` takes.

    Args:
        model: A language model that takes embeddings, read from a file.

    Raises:
        UnsupportedError: GP325, there is no such model, or there are several.
        ReadError: As `graphpass.io.load`.
    """
    embedder = find_text_embeddings(model)
    if embedder is None:
        message = f"no one model beside {model.path} embeds token ids for it"
        raise UnsupportedError("GP325", message, "feed the session embeddings")
    return _embeddings_of(embedder)


def _embeddings_of(embedder: Model) -> Embed:
    (ids,), (embeddings,) = embedder.inputs, embedder.outputs
    dtype = numpy_type(ids.element_type, f"input {ids.name}")
    request = open_request(embedder, Device("CPU", exact=True, properties={}))

    def embed(tokens: NDArray[np.int64]) -> NDArray[np.float32]:
        return request.infer({ids.name: tokens.astype(dtype)})[embeddings.name].astype(np.float32)

    return embed


def find_text_embeddings(model: Model) -> Model | None:
    """Return the one model beside ``model`` that embeds token ids for it, if any.

    Raises:
        ReadError: As `graphpass.io.load`.
    """
    hidden = hidden_size(model)
    if model.path is None or hidden is None:
        return None
    others = [load(file) for file in models_in(model.path.parent) if file != model.path]
    candidates = [other for other in others if _embeds(other, hidden)]
    return candidates[0] if len(candidates) == 1 else None


def let_take_ids(model: Model, *sessions: DecodeSession) -> None:
    """Let those of some sessions that take embeddings take ids, for trials and comparisons.

    Args:
        model: The model; embeddings are those of the model beside it, if there is one, and else from a seed.
        sessions: Sessions of it, and of models made of it.

    Raises:
        UnsupportedError: GP325, the size of embeddings is not known.
    """
    takers = [session for session in sessions if session.takes_embeddings]
    if not takers:
        return
    hidden = hidden_size(model)
    if hidden is None:
        message = "the model does not fix the size of the embeddings that it takes"
        raise UnsupportedError("GP325", message, "give the last dimension of inputs_embeds a fixed size")
    beside = find_text_embeddings(model)
    embed = seeded_embeddings(hidden) if beside is None else _embeddings_of(beside)
    for session in takers:
        session.embed_with(embed)


def seeded_embeddings(hidden: int) -> Embed:
    """Return embeddings of token ids: normal numbers, the same for an id every time."""

    @functools.cache
    def row(token: int) -> NDArray[np.float32]:
        return np.random.Generator(np.random.PCG64([_SEED, token])).standard_normal(hidden, np.float32)

    def embed(ids: NDArray[np.int64]) -> NDArray[np.float32]:
        return np.stack([np.stack([row(token) for token in sequence]) for sequence in ids.tolist()])

    return embed


def hidden_size(model: Model) -> int | None:
    """Return the size of embeddings that ``model`` fixes; ``None`` if it takes none."""
    shape = next((port.shape for port in model.inputs if port.name == EMBEDDINGS), None)
    size = shape[-1] if shape else None
    return size if isinstance(size, int) else None


def _embeds(model: Model, hidden: int) -> bool:
    if len(model.inputs) != 1 or len(model.outputs) != 1:
        return False
    ids, embeddings = model.inputs[0], model.outputs[0]
    shape = embeddings.shape or ()
    takes_ids = ids.element_type in ("i32", "i64") and len(ids.shape or ()) == 2
    return takes_ids and len(shape) == 3 and shape[2] == hidden
