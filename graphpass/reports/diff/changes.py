"""How two models differ, as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from graphpass.ir.types import Dialect

__all__ = ["Change", "Difference", "Facets", "WeightChanges", "changes_between"]

Facets = Mapping[str, str]
"""What there is to say of one thing, in words: ``{"kind": "MatMul", "reads 0": "hidden"}``."""


@dataclass(frozen=True, slots=True)
class Change:
    """One thing that is not the same in both models.

    Attributes:
        name: What it is called; in the first model, where it was renamed.
        before: What there is to say of it in the first model; ``None`` where it is in the second alone. Of what is in
            both only that which differs.
        after: The same of the second model.
    """

    name: str
    before: Facets | None
    after: Facets | None


@dataclass(frozen=True, slots=True)
class WeightChanges:
    """How weights differ, that is tensors of more than 1 KiB.

    Attributes:
        before: How many the first model has.
        after: How many the second has.
        unchanged_bytes: Bytes of weights that both have, under whatever name.
        changed_bytes: Bytes of all others; where both have a weight of one name, the larger counts.
        changes: The weights that differ, and those that are called differently.
    """

    before: int
    after: int
    unchanged_bytes: int
    changed_bytes: int
    changes: tuple[Change, ...]

    @property
    def unchanged_percent(self) -> float:
        """Of all bytes, rounded down to two digits, so that 100 means all."""
        total = self.unchanged_bytes + self.changed_bytes
        return 100.0 if not total else self.unchanged_bytes * 10_000 // total / 100


@dataclass(frozen=True, slots=True)
class Difference:
    """How a model differs from another.

    Attributes:
        dialects: Of both.
        kinds: How many operators of each kind there are in both, where these numbers differ.
        operators: By name; small constants count as part of what reads them.
        inputs: By name.
        outputs: By name.
        caches: By name, or by layer and role where the names differ.
        metadata: By key; empty where the dialects differ, since they have no keys in common.
        weights: By name, element type and what they hold.
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
        """Whether there is no difference."""
        sections = (self.operators, self.inputs, self.outputs, self.caches, self.metadata, self.weights.changes)
        return self.dialects[0] == self.dialects[1] and not self.other and not any(sections)


def changes_between(before: Mapping[str, Facets], after: Mapping[str, Facets]) -> tuple[Change, ...]:
    """The changes from one set of named things to another: those of the first in its order, then what is new."""
    changes = []
    for name, old in before.items():
        if name not in after:
            changes.append(Change(name, old, None))
        elif facets := [key for key in {**old, **after[name]} if old.get(key) != after[name].get(key)]:
            changes.append(Change(name, _only(old, facets), _only(after[name], facets)))
    return (*changes, *(Change(name, None, new) for name, new in after.items() if name not in before))


def _only(facets: Facets, keys: list[str]) -> Facets:
    return {key: facets[key] for key in keys if key in facets}
