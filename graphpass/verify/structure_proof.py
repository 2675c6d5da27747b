"""Operators that are equal for every input, and those compared by numbers, as plain data."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

#: Maximum number of names in a line.
_NAMED = 4


@dataclass(frozen=True, slots=True)
class Region:
    """The start of a region of operators that were compared by numbers alone.

    Attributes:
        node: Name of the candidate's first node whose value equals no value of the reference.
        operator: Operator of the node.
        reason: The operator or tensor without a symbolic definition, or the difference.
    """

    node: str
    operator: str
    reason: str


@dataclass(frozen=True, slots=True)
class Fed:
    """Runs of unequal operators on random inputs.

    Attributes:
        values: Names of the candidate's values that were replaced by random numbers; empty without runs.
        runs: Number of runs of both models.
        difference: The first operator that reads one of ``values``, with the first difference; ``None`` if all results
            were equal.
        reason: Reason for the absence of runs, as text; ``None`` with runs.
    """

    values: tuple[str, ...] = ()
    runs: int = 0
    difference: Region | None = None
    reason: str | None = None

    def __str__(self) -> str:
        if self.reason is not None:
            return f"no runs from random numbers: {self.reason}"
        listed = ", ".join(self.values[:_NAMED]) + (", ..." if len(self.values) > _NAMED else "")
        result = "same" if self.difference is None else self.difference.reason
        return f"{self.runs} {'run' if self.runs == 1 else 'runs'} from random numbers for {listed}: {result}"


@dataclass(frozen=True, slots=True)
class StructureProof:
    """Number of the candidate's operators that are equal for every input, in real arithmetic.

    Attributes:
        operators: Number of operators upstream of outputs and caches.
        equal: Number of operators whose downstream values, up to outputs and caches, are all equal.
        unpadded: The same for batches without padding, with positions that continue the past.
        regions: The first operators that differ, for batches without padding.
        rows: Number of compared rows of rotary tables; ``None`` without tables.
        assumed: Assumed conditions on shapes of inputs, besides those of all models with caches, as text.
        chunks: Names of operators that compute states of chunks; runs on random inputs show them to be linear
            attention.
        added: Operators with a condition on the batch size, row index or token ids that the reference lacks.
        fed: Runs of the regions on random inputs; ``None`` if none were requested.
    """

    operators: int
    equal: int
    unpadded: int
    regions: tuple[Region, ...] = ()
    rows: int | None = None
    assumed: tuple[str, ...] = ()
    chunks: tuple[str, ...] = ()
    added: tuple[Region, ...] = ()
    fed: Fed | None = None

    @property
    def is_complete(self) -> bool:
        """Return whether all operators are equal for every input without padding."""
        return self.operators == self.unpadded and not self.chunks

    @property
    def is_complete_with_padding(self) -> bool:
        """Return whether all operators are equal for every input."""
        return self.is_complete and self.operators == self.equal

    def joined(self, other: StructureProof) -> StructureProof:
        """Return the sum of this proof and that of another part or branch."""
        return StructureProof(
            self.operators + other.operators,
            self.equal + other.equal,
            self.unpadded + other.unpadded,
            self.regions + other.regions,
            min((rows for rows in (self.rows, other.rows) if rows is not None), default=None),
            tuple(dict.fromkeys(self.assumed + other.assumed)),
            tuple(dict.fromkeys(self.chunks + other.chunks)),
            tuple(dict.fromkeys(self.added + other.added)),
            other.fed if self.fed is None or (other.fed is not None and other.fed.difference) else self.fed,
        )

    def difference(self, allowed: Collection[str]) -> Region | None:
        """Return the first operator of ``added`` and ``fed`` that may not differ, with the reason.

        Args:
            allowed: Names of nodes that may differ.
        """
        region = None if self.fed is None else self.fed.difference
        fed = () if region is None else (replace(region, reason=str(self.fed)),)
        return next((region for region in (*self.added, *fed) if region.node not in allowed), None)

    def in_words(self) -> Iterator[str]:
        """Yield the lines of the report: counts, then regions, added operators and runs."""
        yield from self.counts()
        yield from self.details()

    def counts(self) -> Iterator[str]:
        """Yield the lines on equal operators, with the conditions of their equality."""
        of = f"of {self.operators:,} operators"
        until = "" if self.rows is None else f", up to position {self.rows:,}"
        until += "".join(f", given that {condition}" for condition in self.assumed)
        if self.chunks:
            chunks = "a chunk of tokens is" if len(self.chunks) == 1 else f"{len(self.chunks)} chunks of tokens are"
            until += f", given that {chunks} linear attention, as random numbers show"
        if self.equal or not self.unpadded:
            yield f"equal for every input{until}: {self.equal:,} {of}"
        if self.unpadded > self.equal:
            yield f"equal for every input without padding{until}: {self.unpadded:,} {of}"

    def details(self) -> Iterator[str]:
        """Yield the lines on regions, added operators and runs on random numbers."""
        for region in self.regions:
            yield f"compared by numbers from {region.operator} {region.node} on: {region.reason}"
        for region in self.added:
            yield f"{region.operator} {region.node}: {region.reason}"
        if self.fed is not None:
            yield str(self.fed)
