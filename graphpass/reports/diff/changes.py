"""Hold the differences of two models as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from graphpass.ir.types import Dialect

Facets = Mapping[str, str]
"""Describes one thing in words: ``{"kind": "MatMul", "reads 0": "hidden"}``."""


@dataclass(frozen=True, slots=True)
class Change:
    """Records one thing that differs between two models.

    Attributes:
        name: Its name; in the first model, if it was renamed.
        before: Facets in the first model that differ; ``None`` if it is only in the second.
        after: Facets in the second model that differ; ``None`` if it is only in the first.
    """

    name: str
    before: Facets | None
    after: Facets | None


@dataclass(frozen=True, slots=True)
class WeightChanges:
    """Records how weights differ, which are tensors of more than 1 KiB.

    Attributes:
        before: Number of weights of the first model.
        after: Number of weights of the second.
        unchanged_bytes: Bytes of weights that both have, under any name.
        changed_bytes: Bytes of all others; of two weights of one name, the larger counts.
        changes: Weights that differ, and renamed ones.
    """

    before: int
    after: int
    unchanged_bytes: int
    changed_bytes: int
    changes: tuple[Change, ...]

    @property
    def unchanged_percent(self) -> float:
        """Return the unchanged part of all bytes, rounded down to two digits."""
        total = self.unchanged_bytes + self.changed_bytes
        return 100.0 if not total else self.unchanged_bytes * 10_000 // total / 100


@dataclass(frozen=True, slots=True)
class ModelDifference:
    """Records how a model differs from another.

    Attributes:
        dialects: Dialects of both.
        kinds: Operators of each kind in both, if these numbers differ.
        operators: Changes by name; small constants count as part of their readers.
        inputs: Changes by name.
        outputs: Changes by name.
        caches: Changes by name, or by layer and role if the names differ.
        metadata: Changes by key; empty if the dialects differ, since they have no keys in common.
        weights: Changes by name, element type and contents.
        other: Whether the graphs differ although nothing above does: in documentation, or in the order of nodes.
    """

    dialects: tuple[Dialect, Dialect]
    kinds: tuple[tuple[str, int, int], ...]
    operators: tuple[Change, ...]
    inputs: tuple[Change, ...]
    outputs: tuple[Change, ...]
    caches: tuple[Change, ...]
    metadata: tuple[Change, ...]
    weights: WeightChanges
    other: bool

    @property
    def same(self) -> bool:
        """Return whether there is no difference."""
        sections = (self.operators, self.inputs, self.outputs, self.caches, self.metadata, self.weights.changes)
        return self.dialects[0] == self.dialects[1] and not self.other and not any(sections)


def changes_between(before: Mapping[str, Facets], after: Mapping[str, Facets]) -> tuple[Change, ...]:
    """Return the changed and removed entries in the first order, then the added ones."""
    changes = []
    for name, old in before.items():
        if name not in after:
            changes.append(Change(name, old, None))
        elif facets := [key for key in {**old, **after[name]} if old.get(key) != after[name].get(key)]:
            changes.append(Change(name, _only(old, facets), _only(after[name], facets)))
    return (*changes, *(Change(name, None, new) for name, new in after.items() if name not in before))


def _only(facets: Facets, keys: list[str]) -> Facets:
    return {key: facets[key] for key in keys if key in facets}
