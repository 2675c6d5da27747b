"""Decode sessions: one interface over the runtimes that execute a language model step by step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphpass.runtime.backends.opening import Backend, open_session
from graphpass.runtime.sessions.reorder_text import parse_reorder
from graphpass.runtime.sessions.stats import SessionStats

if TYPE_CHECKING:
    from graphpass.runtime.pair.phases import open_pair
    from graphpass.runtime.sessions.checkpoints import Snapshot
    from graphpass.runtime.sessions.session import DecodeSession

__all__ = [
    "Backend",
    "DecodeSession",
    "SessionStats",
    "Snapshot",
    "open_pair",
    "open_session",
    "parse_reorder",
]


def __getattr__(name: str) -> object:
    # These need numpy, which `import graphpass.runtime` should not pay for.
    if name == "DecodeSession":
        from graphpass.runtime.sessions.session import DecodeSession

        return DecodeSession
    if name == "Snapshot":
        from graphpass.runtime.sessions.checkpoints import Snapshot

        return Snapshot
    if name == "open_pair":
        from graphpass.runtime.pair.phases import open_pair

        return open_pair
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
