"""Results of comparisons, as plain data."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import Any

from graphpass.verify.reach import Reach
from graphpass.verify.structure_proof import StructureProof

#: Prefix of the names of parts between the caches of two layers; the index of the layer follows.
FEED_FORWARD = "feed-forward"


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first difference of two models.

    Attributes:
        sequence: Index of the sequence.
        step: Index of the step; 0 is the prefill.
        output: Name of the output; ``None`` if the candidate failed to run.
        index: Index of the element in the output; empty if the whole output differs, for example in shape.
        reference: The reference's value at ``index``; ``None`` if the whole output differs.
        candidate: The candidate's value at ``index``; ``None`` if the whole output differs.
        reason: The difference, as text.
        edits: Edits of the caches directly before the step, as text.
        place: The location, as text, of a difference that was found without a sequence: the lengths and attention of
            a subgraph, or a node; ``None`` for differences in sequences.
    """

    sequence: int
    step: int
    output: str | None
    index: tuple[int, ...]
    reference: float | None
    candidate: float | None
    reason: str
    edits: tuple[str, ...] = ()
    place: str | None = None

    def __str__(self) -> str:
        if self.place is not None:
            return f"{self.place}: {self.reason}"
        when = "the prefill" if self.step == 0 else f"step {self.step}"
        when += f" after {', '.join(self.edits)}" if self.edits else ""
        where = "" if self.output is None else f", output {self.output}{list(self.index) or ''}"
        return f"sequence {self.sequence}, {when}{where}: {self.reason}"


@dataclass(frozen=True, slots=True)
class SequenceRun:
    """One trajectory: a reset, a prefill, and greedy steps, with edits of caches between them.

    Attributes:
        description: The trajectory, as text.
        prompt_ids: Token ids of the prompt of each row, without padding.
        steps: Number of greedy steps run after the prefill.
        reference_ids: Greedy choices of the reference for each row; both models were fed these.
        candidate_ids: Greedy choices of the candidate for each row.
        edits: Edits of the caches before each step, as text; empty if caches were not edited.
    """

    description: str
    prompt_ids: tuple[tuple[int, ...], ...]
    steps: int
    reference_ids: tuple[tuple[int, ...], ...]
    candidate_ids: tuple[tuple[int, ...], ...]
    edits: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class PartProof:
    """One part of two models that were compared part by part.

    Attributes:
        name: Name of the part: ``layer 3``, ``head``.
        reference_end: Name of its last value in the reference.
        candidate_end: Name of its last value in the candidate.
        weights: Number of the candidate's weights in the part.
        like: Name of the part that ran instead, which has the same structure in both models and other weights at the
            same nodes; ``None`` if this part ran.
        difference: Largest difference between finite values of the last value; ``None`` if the part did not run.
    """

    name: str
    reference_end: str
    candidate_end: str
    weights: int
    like: str | None = None
    difference: float | None = None


@dataclass(frozen=True, slots=True)
class Comparison:
    """The result of a comparison of two models.

    Attributes:
        sequences: The trajectories, in order, up to the first that diverged.
        outputs: Names of the compared outputs.
        max_abs_difference: Largest difference between finite values of all compared outputs.
        divergence: The first difference; ``None`` if the models agree.
        skipped: Parts that were not compared, with reasons.
        warnings: Inconsistencies of the reference, and rounding that the runtime adds by default.
        parts: The parts, up to the first that diverged; empty if models were compared whole.
        reach: Comparison of masks and angles at further lengths; ``None`` if they were not compared.
        structure: Operators that are equal for every input; ``None`` if structures were not compared.
        rounding: The difference of all logits as text, if the divergence may be rounding: the reference also diverges
            when its embeddings change by the rounding error of the candidate's type; else ``None``.

    Examples:
        >>> import graphpass
        >>> comparison = graphpass.verify("build/fixtures/llama/onnx", "build/fixtures/llama/ov-stateful", steps=2)
        >>> comparison.passed, comparison.divergence
        (True, None)
    """

    sequences: tuple[SequenceRun, ...]
    outputs: tuple[str, ...]
    max_abs_difference: float
    divergence: Divergence | None
    skipped: tuple[str, ...]
    warnings: tuple[str, ...] = ()
    parts: tuple[PartProof, ...] = ()
    reach: Reach | None = None
    structure: StructureProof | None = None
    rounding: str | None = None

    def __str__(self) -> str:
        return self.summary()

    @property
    def passed(self) -> bool:
        """Return whether the candidate computes the same as the reference."""
        return self.divergence is None

    def passed_as_rounding(self) -> Comparison:
        """Return the comparison without a divergence that may be rounding, for equal structures."""
        if self.rounding is None:
            return self
        return replace(self, divergence=None, rounding=None, skipped=(*self.skipped, self.rounding))

    def diverging(self, place: str, reason: str) -> Comparison:
        """Return the comparison with a divergence that was found without a sequence.

        Args:
            place: The location, as text, see `Divergence.place`.
            reason: The difference, as text.
        """
        where = Divergence(len(self.sequences), 0, None, (), None, None, reason, place=place)
        return replace(self, divergence=where)

    def followed_by(self, other: Comparison) -> Comparison:
        """Return the union of two comparisons, with the first divergence."""
        shift = len(self.sequences)
        parted = other.divergence
        return replace(
            self,
            sequences=self.sequences + other.sequences,
            max_abs_difference=max(self.max_abs_difference, other.max_abs_difference),
            divergence=self.divergence
            or (None if parted is None else replace(parted, sequence=parted.sequence + shift)),
            skipped=tuple(dict.fromkeys(self.skipped + other.skipped)),
        )

    @property
    def is_proven(self) -> bool:
        """Return whether the models are equal for every input without padding."""
        return self.passed and self.structure is not None and self.structure.is_complete

    @property
    def unproven(self) -> tuple[str, ...]:
        """Return the lines of the structural comparison."""
        return ("structures were not compared",) if self.structure is None else tuple(self.structure.in_words())

    @property
    def steps_run(self) -> int:
        """Return the number of greedy steps over all sequences, without prefills."""
        return sum(run.steps for run in self.sequences)

    @property
    def greedy_ids(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the reference's and the candidate's greedy ids of the first row."""
        first = self.sequences[0]
        return first.reference_ids[0], first.candidate_ids[0]

    def to_json(self) -> dict[str, Any]:
        """Return the fields in JSON's types; non-finite numbers are the strings ``"nan"``, ``"inf"``, ``"-inf"``."""
        content: dict[str, Any] = _plain({"passed": self.passed, "steps_run": self.steps_run, **asdict(self)})
        return content

    @property
    def verdict(self) -> str:
        """Return one line: the verdict, the compared outputs and the largest difference."""
        word = "same" if self.passed else "DIFFERENT"
        parts = f"{_counted(len(self.parts), 'part')}, " if self.parts else ""
        return (
            f"{word}: {parts}{_counted(len(self.sequences), 'sequence')}, {_counted(self.steps_run, 'greedy step')}, "
            f"{', '.join(self.outputs)} compared; largest difference {self.max_abs_difference:.3g}"
        )

    @property
    def remarks(self) -> tuple[str, ...]:
        """Return the first difference, warnings, equal operators, skipped parts and unequal operators."""
        lines = [] if self.divergence is None else [f"first at {self.divergence}"]
        lines += (f"WARNING: {text}" for text in self.warnings)
        lines += () if self.structure is None else self.structure.counts()
        lines += (f"not compared: {text}" for text in self.skipped)
        lines += () if self.structure is None else self.structure.details()
        return tuple(lines)

    def summary(self) -> str:
        """Return the report: the verdict, the divergence, sequences, lengths, structure and warnings."""
        lines = [self.verdict]
        if self.divergence is not None:
            lines.append(f"  first at {self.divergence}")
        lines.extend(f"  {line}" for line in _in_words(self.parts))
        for number, run in enumerate(self.sequences):
            lines.append(f"  sequence {number}: {run.description}, {_counted(run.steps, 'greedy step')}")
            lines.extend(
                f"    before step {step}: {', '.join(edits)}" for step, edits in enumerate(run.edits, 1) if edits
            )
            lines.extend(f"    reference {_ids(ids)}" for ids in run.reference_ids)
            if run.candidate_ids != run.reference_ids:
                lines.extend(f"    candidate {_ids(ids)}" for ids in run.candidate_ids)
        if self.reach is not None and self.reach.steps:
            most = max(map(sum, self.reach.steps))
            lines.append(
                f"  masks of {self.reach.masks} and angles of {self.reach.angles} attention alone: "
                f"{_counted(len(self.reach.steps), 'step')} of up to {most} positions"
            )
        if self.reach is not None and self.reach.swept:
            lines.append(f"  angles and learned positions: each up to {self.reach.swept}")
        for proof in () if self.reach is None else self.reach.proofs:
            lines.extend(f"  {line}" for line in proof.in_words())
        if self.structure is not None:
            lines.extend(f"  {line}" for line in self.structure.in_words())
        lines.extend(f"  not compared: {text}" for text in self.skipped)
        lines.extend(f"  WARNING: {text}" for text in self.warnings)
        return "\n".join(lines)


def _in_words(parts: tuple[PartProof, ...]) -> list[str]:
    """Return the lines on parts that ran, and on parts that were inferred from others."""
    if not parts:
        return []
    ran = [part.name for part in parts if part.like is None]
    lines = [f"part by part: ran {', '.join(ran)}, each with its own weights and caches, on random vectors"]
    words = [f"{part.name} {part.difference:.2g}" for part in parts if part.difference is not None]
    lines.append(f"largest differences: {', '.join(words)}")
    for like in ran:
        alike = [part.name for part in parts if part.like == like]
        if alike:
            lines.append(
                f"inferred from {like}: {_span(alike)}, of equal structure in both models, with weights of the "
                "reference in the same places"
            )
    return lines


def _span(names: list[str]) -> str:
    """Return names of one kind with ranges for consecutive numbers: ``layers 1-3, 5``."""
    numbers = [int(name.split()[-1]) for name in names]
    spans: list[list[int]] = []
    for number in numbers:
        if spans and number == spans[-1][-1] + 1:
            spans[-1][1:] = [number]
        else:
            spans.append([number])
    words = ["-".join(map(str, ends)) for ends in spans]
    kind = names[0].rsplit(maxsplit=1)[0]
    return f"{kind}{'s' * (len(numbers) > 1)} {', '.join(words)}"


def _counted(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def _ids(ids: tuple[int, ...]) -> str:
    return " ".join(map(str, ids))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
