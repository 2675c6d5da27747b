"""Hold the result of a comparison as plain data."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, TypeAlias

#: Begins the name of a part that follows the caches of a layer, whose number ends it.
FEED_FORWARD = "feed-forward"

#: Names that a line lists at most.
_NAMED = 4


@dataclass(frozen=True, slots=True)
class Divergence:
    """Locates the first difference of two models.

    Attributes:
        sequence: Index of the compared sequence.
        step: Index of the step; 0 is the prefill.
        output: The output's name; ``None`` if the candidate failed to run.
        index: Place in the output; empty if the whole output differs.
        reference: The reference's value there; ``None`` if the whole output differs.
        candidate: The candidate's value there.
        reason: The difference, for people.
        edits: Edits of the caches right before that step, for people.
        place: For comparisons without sequences, the lengths and attention of the compared subgraph, or a node, for
            people; else ``None``.
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
    """Records one trajectory: a reset, a prefill, greedy steps, and edits of caches between them.

    Attributes:
        description: The trajectory, for people.
        prompt_ids: One prompt a row, without padding.
        steps: Greedy steps that were run after the prefill.
        reference_ids: The reference's choices, which both models were fed, one tuple a row.
        candidate_ids: The candidate's choices.
        edits: Edits of the caches before each step that was run, for people; empty if there were none.
    """

    description: str
    prompt_ids: tuple[tuple[int, ...], ...]
    steps: int
    reference_ids: tuple[tuple[int, ...], ...]
    candidate_ids: tuple[tuple[int, ...], ...]
    edits: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class PartProof:
    """Records one part of models that were compared part by part.

    Attributes:
        name: The part: ``layer 3``, ``head``.
        reference_end: The value with which it ends in the reference.
        candidate_end: The value with which it ends in the candidate.
        weights: Number of the candidate's weights in it.
        like: The part that ran in its place: of equal structure in both models, with other weights in the same places;
            ``None`` if it ran itself.
        difference: Largest difference between finite values at its end; ``None`` if it did not run.
    """

    name: str
    reference_end: str
    candidate_end: str
    weights: int
    like: str | None = None
    difference: float | None = None


Subject: TypeAlias = Literal["masks", "angles"]
"""What is compared of each attention."""


@dataclass(frozen=True, slots=True)
class LengthProof:
    """Counts the attention whose masks or angles are equal for every batch, past and length.

    Attributes:
        subject: Masks or angles.
        equal: Number of those equal for any padding and positions.
        unpadded: Number of those equal for batches without padding; padding was compared by running the models.
        sampled: The others, which were compared at the steps that were run: attention, reason and node.
    """

    subject: Subject
    equal: int
    unpadded: int
    sampled: tuple[str, ...]

    def in_words(self) -> Iterator[str]:
        """Yield one line a verdict."""
        counted = "masks of {} attention" if self.subject == "masks" else "angles or learned positions of {} nodes"
        if self.equal:
            yield f"{counted.format(self.equal)} equal for every batch, past and length"
        if self.unpadded:
            yield f"{counted.format(self.unpadded)} equal for every batch, past and length without padding"
        for name in self.sampled:
            yield f"{self.subject} compared at sampled lengths: {name}"

    def __add__(self, other: LengthProof) -> LengthProof:
        counts = self.equal + other.equal, self.unpadded + other.unpadded
        return LengthProof(self.subject, *counts, self.sampled + other.sampled)


@dataclass(frozen=True, slots=True)
class Reach:
    """Records the lengths that masks and angles were cut out and compared at.

    Attributes:
        thresholds: Lengths at which either graph changes what it does.
        steps: Numbers of positions before and in each step that masks and angles were computed at, if some are open.
        masks: Number of attention whose masks were compared as expressions, or at all steps.
        angles: Number of attention whose query and keys positions turn, compared likewise.
        swept: Number of positions, from 0 on, whose angles were compared as numbers; 0 if none were.
        proofs: The masks, and the angles, that are equal at all steps there are.
    """

    thresholds: tuple[int, ...]
    steps: tuple[tuple[int, int], ...]
    masks: int
    angles: int
    swept: int = 0
    proofs: tuple[LengthProof, ...] = ()

    def __add__(self, other: Reach) -> Reach:
        return Reach(
            tuple(sorted({*self.thresholds, *other.thresholds})),
            tuple(sorted({*self.steps, *other.steps})),
            self.masks + other.masks,
            self.angles + other.angles,
            max(self.swept, other.swept),
            tuple(left + right for left, right in zip(self.proofs, other.proofs, strict=True)),
        )


@dataclass(frozen=True, slots=True)
class Region:
    """Locates operators that were compared by numbers alone.

    Attributes:
        node: Name of the candidate's first operator whose value the reference does not have.
        operator: Its operator.
        reason: The part that is not known, or the difference.
    """

    node: str
    operator: str
    reason: str


@dataclass(frozen=True, slots=True)
class Fed:
    """Records runs of unequal operators on random inputs.

    Attributes:
        values: Names of the candidate's values that were replaced; none if nothing ran.
        runs: Number of runs of both models.
        difference: The first operator that reads one of them, with the first difference; ``None`` if there was none.
        reason: Reason that nothing ran, for people; ``None`` if it did.
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
        return f"{_counted(self.runs, 'run')} from random numbers for {listed}: {result}"


@dataclass(frozen=True, slots=True)
class StructureProof:
    """Counts the candidate's operators that are equal for every input, in real arithmetic.

    Attributes:
        operators: Number of operators upstream of outputs and caches.
        equal: Number of those from which only equal values lead to outputs and caches.
        unpadded: The same for batches without padding, with positions that continue the past.
        regions: The first operators that differ, for batches without padding.
        rows: Number of compared rows of rotary tables; ``None`` without tables.
        assumed: Assumed conditions on shapes of inputs, besides those of all models with caches, for people.
        chunks: Operators that compute states of chunks, found to be linear attention by random inputs.
        added: Operators with a condition on batch, rows or token ids that the reference lacks.
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

    def difference(self, allowed: Collection[str]) -> Region | None:
        """Return the first operator that makes the models differ, with the reason.

        Args:
            allowed: Names of operators that may differ.
        """
        region = None if self.fed is None else self.fed.difference
        fed = () if region is None else (replace(region, reason=str(self.fed)),)
        return next((region for region in (*self.added, *fed) if region.node not in allowed), None)

    def in_words(self) -> Iterator[str]:
        """Yield a line for each kind of inputs, and one for each region."""
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
        for region in self.regions:
            yield f"compared by numbers from {region.operator} {region.node} on: {region.reason}"
        for region in self.added:
            yield f"{region.operator} {region.node}: {region.reason}"
        if self.fed is not None:
            yield str(self.fed)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Reports on two models that ran in lockstep.

    Attributes:
        sequences: The trajectories, in order; none after the one that diverged.
        outputs: Names of the outputs that were compared.
        max_abs_difference: Largest difference between finite values, over all that was compared.
        divergence: The first place where they part; ``None`` if they do not.
        skipped: Parts that were not compared, with reasons.
        warnings: Contradictions of the reference with itself, and rounding that the runtime adds by default.
        parts: The parts, if models were compared part by part; none after the one that diverged.
        reach: Lengths beyond those of the sequences; ``None`` if nothing was cut out.
        structure: Operators that are equal for every input; ``None`` if structures were not compared.
        rounding: Words on how far all logits differ, if single ones differ as those of the reference do from its own
            when its embeddings are off by what the candidate rounds; ``None`` if they do not.

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
        """Return the comparison of models of equal structure, which differ by rounding alone."""
        if self.rounding is None:
            return self
        return replace(self, divergence=None, rounding=None, skipped=(*self.skipped, self.rounding))

    def diverging(self, place: str, reason: str) -> Comparison:
        """Return the comparison with a first difference that no sequence showed."""
        where = Divergence(len(self.sequences), 0, None, (), None, None, reason, place=place)
        return replace(self, divergence=where)

    def followed_by(self, other: Comparison) -> Comparison:
        """Return both comparisons as one, with the first divergence."""
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
        """Return lines on operators that were compared by numbers."""
        return ("structures were not compared",) if self.structure is None else tuple(self.structure.in_words())

    @property
    def steps_run(self) -> int:
        """Return the greedy steps over all sequences, without prefills."""
        return sum(run.steps for run in self.sequences)

    @property
    def greedy_ids(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the greedy ids of the first sequence, of reference and candidate."""
        first = self.sequences[0]
        return first.reference_ids[0], first.candidate_ids[0]

    def to_json(self) -> dict[str, Any]:
        """Return the fields in JSON's types; values that JSON lacks are strings: ``"nan"``, ``"inf"``."""
        content: dict[str, Any] = _plain({"passed": self.passed, "steps_run": self.steps_run, **asdict(self)})
        return content

    @property
    def verdict(self) -> str:
        """Return one line: whether the models compute the same, and what was compared."""
        word = "same" if self.passed else "DIFFERENT"
        parts = f"{_counted(len(self.parts), 'part')}, " if self.parts else ""
        return (
            f"{word}: {parts}{_counted(len(self.sequences), 'sequence')}, {_counted(self.steps_run, 'greedy step')}, "
            f"{', '.join(self.outputs)} compared; largest difference {self.max_abs_difference:.3g}"
        )

    @property
    def remarks(self) -> tuple[str, ...]:
        """Return lines on the first difference, warnings and what was not compared."""
        first = () if self.divergence is None else (f"first at {self.divergence}",)
        skipped = (f"not compared: {text}" for text in self.skipped)
        return (*first, *(f"WARNING: {text}" for text in self.warnings), *skipped)

    def summary(self) -> str:
        """Return the verdict, and a line or more on each sequence."""
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
    """Return lines on the parts that ran, and on those that were inferred."""
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
    """Shorten runs of numbered names."""
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
