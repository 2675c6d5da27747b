"""Decode sessions: one interface over the runtimes that execute a language model step by step."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from graphpass.runtime.backends.request import Backend
from graphpass.runtime.opening import open_session
from graphpass.runtime.sessions.reorder_text import parse_reorder

if TYPE_CHECKING:
    from graphpass.runtime.embedding_model import text_embeddings
    from graphpass.runtime.pair.phases import open_pair
    from graphpass.runtime.sessions.checkpoints import Snapshot
    from graphpass.runtime.sessions.session import DecodeSession
    from graphpass.runtime.sessions.stats import SessionStats

__all__ = [
    "Backend",
    "DecodeSession",
    "SessionStats",
    "Snapshot",
    "open_pair",
    "open_session",
    "parse_reorder",
    "text_embeddings",
]

#: Modules that import numpy; they are loaded on first access, so that `import graphpass.runtime` is fast.
_LAZY = {
    "DecodeSession": "sessions.session",
    "SessionStats": "sessions.stats",
    "Snapshot": "sessions.checkpoints",
    "open_pair": "pair.phases",
    "text_embeddings": "embedding_model",
}


def __getattr__(name: str) -> object:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)
