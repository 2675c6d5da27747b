"""What a decode session should hold and compute, told by recomputation from scratch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from graphpass.runtime import DecodeSession

#: The tokens that a slot's content was computed from, up to and including the slot's own.
Path = tuple[int, ...]

#: What a slot holds; ``None`` for padding.
Slot = Path | None


class Recomputation:
    """Logits behind token sequences, each from a prefill of its own; remembered, since tests ask again and again."""

    def __init__(self, session: DecodeSession) -> None:
        self._session = session
        self._known: dict[Path, np.ndarray] = {}

    @property
    def vocabulary(self) -> int:
        return len(self((0,)))

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
        rows: For each row, what each slot holds.
    """

    def __init__(self, recompute: Recomputation) -> None:
        self._recompute = recompute
        self.rows: list[tuple[Slot, ...]] = []

    @property
    def batch(self) -> int:
        return len(self.rows)

    @property
    def length(self) -> int:
        return len(self.rows[0]) if self.rows else 0

    @property
    def is_padded(self) -> bool:
        return any(slot is None for row in self.rows for slot in row)

    @property
    def tokens(self) -> list[Path]:
        """The surviving tokens of each row; each slot must hold what was computed behind those before it."""
        paths = []
        for row in self.rows:
            before: Path = ()
            for path in filter(None, row):
                assert path[:-1] == before, "no recomputation gives what this holds"
                before = path
            paths.append(before)
        return paths

    def prefill(self, ids: Sequence[Sequence[int]], padding: Sequence[int] | None = None) -> np.ndarray:
        """Logits ``[batch, length, vocabulary]``, NaN where the first ids of a row are padding."""
        padding = padding or [0] * len(ids)
        self.rows = [(None,) * count for count in padding]
        logits = np.full((len(ids), len(ids[0]), self._recompute.vocabulary), np.nan, np.float32)
        for number, (row, count) in enumerate(zip(ids, padding, strict=True)):
            paths = _paths((), row[count:], range(-1, len(row) - count - 1))
            self.rows[number] += tuple(paths)
            # The last ones first: the logits of those before them come with theirs.
            for place, path in reversed(list(enumerate(paths, count))):
                logits[number, place] = self._recompute(path)
        return logits

    def step(self, ids: Sequence[Sequence[int]], parents: Sequence[int] | None = None) -> np.ndarray:
        """Logits ``[batch, length, vocabulary]``."""
        if not self.rows:
            self.rows = [()] * len(ids)
        parents = range(-1, len(ids[0]) - 1) if parents is None else parents
        new = [_paths(before, row, parents) for before, row in zip(self.tokens, ids, strict=True)]
        self.rows = [(*row, *paths) for row, paths in zip(self.rows, new, strict=True)]
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

    def snapshot(self) -> list[tuple[Slot, ...]]:
        return list(self.rows)

    def restore(self, snapshot: list[tuple[Slot, ...]]) -> None:
        self.rows = list(snapshot)


def _paths(before: Path, ids: Sequence[int], parents: Sequence[int]) -> list[Path]:
    paths: list[Path] = []
    for token, parent in zip(ids, parents, strict=True):
        paths.append((*(before if parent < 0 else paths[parent]), token))
    return paths
