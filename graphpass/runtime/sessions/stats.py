"""Costs of edits of a session's caches."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SessionStats:
    """Costs of cache edits since the session was opened.

    Attributes:
        bytes_copied: Bytes of caches that the session read or wrote, without copies inside the model.
        compactions: Number of times that unused entries were removed from the caches.
        snapshots: Number of stored checkpoints of linear caches.
        snapshot_bytes: Bytes of these checkpoints, and of copies in snapshots that are still referenced.
        replayed_tokens: Number of recomputed tokens per row.

    Examples:
        >>> from graphpass.runtime import open_session
        >>> from graphpass.testing import tiny_model
        >>> session = open_session(tiny_model("llama"))
        >>> logits = session.prefill([1, 5, 9])
        >>> session.trim(1)
        >>> session.stats.replayed_tokens
        0
    """

    bytes_copied: int = 0
    compactions: int = 0
    snapshots: int = 0
    snapshot_bytes: int = 0
    replayed_tokens: int = 0
