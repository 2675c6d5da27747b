"""What a session's edits cost."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["SessionStats"]


@dataclass(frozen=True, slots=True)
class SessionStats:
    """What a session has spent on its caches, besides running the model, since it was opened.

    Attributes:
        bytes_copied: Bytes of caches that the session read or wrote itself; what operators of the model copy does not
            count.
        compactions: How often entries that no slot needs any more were taken out of the caches.
        snapshots: How many states of linear caches are kept now, to rewind to.
        snapshot_bytes: Their size, and that of what `DecodeSession.snapshot` had to copy and is still referred to.
        replayed_tokens: Tokens fed again, a row, because their positions' linear states were not kept.
    """

    bytes_copied: int = 0
    compactions: int = 0
    snapshots: int = 0
    snapshot_bytes: int = 0
    replayed_tokens: int = 0
