"""Data classes of the differences of two models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from graphpass.ir.types import Dialect

Facets = Mapping[str, str]
"""Properties of an operator, port, cache or weight as text: ``{"kind": "MatMul", "reads 0": "hidden"}``."""


@dataclass(frozen=True, slots=True)
class Change:
    """An entry that differs between two models: an operator, port, cache, weight or metadata.

    Attributes:
        name: Name of the entry; if renamed, the name in the first model.
        before: Differing facets in the first model; ``None`` if only the second model has the entry.
        after: Differing facets in the second model; ``None`` if only the first model has the entry.
    """

    name: str
    before: Facets | None
    after: Facets | None


@dataclass(frozen=True, slots=True)
class WeightChanges:
    """Differences of weights, which are constants of more than 1 KiB.

    Attributes:
        before: Number of weights of the first model.
        after: Number of weights of the second model.
        unchanged_bytes: Size of the weights that both models have, also under different names.
        changed_bytes: Size of all other weights; of two weights of the same name, the larger counts.
        changes: The differing and the renamed weights.
    """

    before: int
    after: int
    unchanged_bytes: int
    changed_bytes: int
    changes: tuple[Change, ...]

    @property
    def unchanged_percent(self) -> float:
        """Return the share of unchanged bytes in percent, rounded down to two decimals."""
        total = self.unchanged_bytes + self.changed_bytes
        return 100.0 if not total else self.unchanged_bytes * 10_000 // total / 100


@dataclass(frozen=True, slots=True)
class ModelDifference:
    """Differences of two models.

    Attributes:
        dialects: Dialects of both models.
        kinds: Operator types whose numbers differ, with the number in each model.
        operators: Changes by name; small constants count as properties of their users.
        inputs: Changes by name.
        outputs: Changes by name.
        caches: Changes by name, or by layer and role if the names differ.
        metadata: Changes by key; empty if the dialects differ, which share no keys.
        weights: Changes by name, element type and contents.
        other: Whether the graphs differ only in documentation, or in the order of nodes.
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
        """Return whether the models do not differ."""
        sections = (self.operators, self.inputs, self.outputs, self.caches, self.metadata, self.weights.changes)
        return self.dialects[0] == self.dialects[1] and not self.other and not any(sections)


def changes_between(before: Mapping[str, Facets], after: Mapping[str, Facets]) -> tuple[Change, ...]:
    """Return changed and removed entries in the order of ``before``, then added entries.

    Args:
        before: Facets of the first model's entries, by name.
        after: Facets of the second model's entries, by name.
    """
    changes = []
    for name, old in before.items():
        if name not in after:
            changes.append(Change(name, old, None))
        elif facets := [key for key in {**old, **after[name]} if old.get(key) != after[name].get(key)]:
            changes.append(Change(name, _only(old, facets), _only(after[name], facets)))
    return (*changes, *(Change(name, None, new) for name, new in after.items() if name not in before))


def _only(facets: Facets, keys: list[str]) -> Facets:
    return {key: facets[key] for key in keys if key in facets}
