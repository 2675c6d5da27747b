"""Decode sessions: one interface over the runtimes that execute a language model step by step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphpass.runtime.opening import Backend, open_session

if TYPE_CHECKING:
    from graphpass.runtime.session import DecodeSession

__all__ = ["Backend", "DecodeSession", "open_session"]


def __getattr__(name: str) -> object:
    # The class needs numpy, which `import graphpass.runtime` should not pay for.
    if name == "DecodeSession":
        from graphpass.runtime.session import DecodeSession

        return DecodeSession
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
