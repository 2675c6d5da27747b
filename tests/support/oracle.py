"""What a decode session should hold and compute, told by recomputation from scratch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from graphpass.runtime import DecodeSession

#: The tokens that a slot's content was computed from, up to and including the slot's own.
Path = tuple[int, ...]


class Recomputation:
    """Logits behind token sequences, each from a prefill of its own; remembered, since tests ask again and again."""

    def __init__(self, session: DecodeSession) -> None:
        self._session = session
        self._known: dict[Path, np.ndarray] = {}

    def __call__(self, tokens: Path) -> np.ndarray:
        """The logits ``[vocabulary]`` behind the last of ``tokens``."""
        if tokens not in self._known:
            logits = self._session.prefill(tokens)[0]
            # What a causal model gives for the tokens before is what it gives for them alone.
            for missing, row in enumerate(reversed(logits)):
                self._known.setdefault(tokens[: len(tokens) - missing], row.copy())
        return self._known[tokens]


class Oracle:
    """Tokens by row and slot, edited as a session's caches are.

    Attributes:
        rows: For each row, the path of each slot.
    """

    def __init__(self, recompute: Recomputation) -> None:
        self._recompute = recompute
        self.rows: list[tuple[Path, ...]] = []

    @property
    def batch(self) -> int:
        return len(self.rows)

    @property
    def length(self) -> int:
        return len(self.rows[0]) if self.rows else 0

    @property
    def tokens(self) -> list[Path]:
        """The surviving tokens of each row; each slot must hold what was computed behind those before it."""
        for row in self.rows:
            for slot, path in enumerate(row):
                assert path[:-1] == (row[slot - 1] if slot else ()), "no recomputation gives what this holds"
        return [row[-1] if row else () for row in self.rows]

    def prefill(self, ids: Sequence[Sequence[int]], mask: Sequence[Sequence[int]] | None = None) -> np.ndarray:
        self.rows = [()] * len(ids)
        return self.step(ids)

    def step(self, ids: Sequence[Sequence[int]], parents: Sequence[int] | None = None) -> np.ndarray:
        """Logits ``[batch, length, vocabulary]``."""
        if not self.rows:
            self.rows = [()] * len(ids)
        parents = range(-1, len(ids[0]) - 1) if parents is None else parents
        new = [_paths(before, row, parents) for before, row in zip(self.tokens, ids, strict=True)]
        self.rows = [(*row, *paths) for row, paths in zip(self.rows, new, strict=True)]
        # The last ones first: the logits of those before them come with theirs.
        logits = [[self._recompute(path) for path in reversed(paths)] for paths in new]
        return np.array(logits)[:, ::-1]

    def trim(self, count: int) -> None:
        self.rewind(self.length - count)

    def rewind(self, length: int) -> None:
        self.rows = [row[:length] for row in self.rows]

    def reorder(self, src: Sequence[int], dst: Sequence[int]) -> None:
        moved = dict(zip(dst, src, strict=True))
        self.rows = [tuple(row[moved.get(slot, slot)] for slot in range(len(row))) for row in self.rows]

    def select(self, beams: Sequence[int]) -> None:
        self.rows = [self.rows[beam] for beam in beams]

    def reset(self) -> None:
        self.rows = []

    def snapshot(self) -> list[tuple[Path, ...]]:
        return list(self.rows)

    def restore(self, snapshot: list[tuple[Path, ...]]) -> None:
        self.rows = list(snapshot)


def _paths(before: Path, ids: Sequence[int], parents: Sequence[int]) -> list[Path]:
    paths: list[Path] = []
    for token, parent in zip(ids, parents, strict=True):
        paths.append((*(before if parent < 0 else paths[parent]), token))
    return paths
