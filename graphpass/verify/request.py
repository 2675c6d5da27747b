"""Settings of a comparison."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from graphpass.errors import UsageError
from graphpass.runtime import open_session

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from graphpass.runtime.sessions.session import DecodeSession
    from graphpass.verify.difference import Tolerance
    from graphpass.verify.structure_proof import StructureProof


@dataclass(frozen=True, slots=True)
class ProofRequest:
    """Settings of a comparison of two models.

    Attributes:
        steps: Number of greedy steps after each prefill.
        prompt_ids: Token ids of the first prompt; pseudo-random with a fixed seed by default.
        atol: Absolute tolerance; by default that of the types in which the models compute, 1e-3 for f32.
        rtol: Relative tolerance, with the same default.
        edits: Whether to edit caches between steps, in further sequences.
        examine: Whether to check the reference for self-consistency, and to measure rounding that the candidate's
            plugin adds by default, see `graphpass.verify.default_rounding`; the results are warnings.
        padding: Side on which the candidate supports padding of shorter rows.
        device: OpenVINO device of the candidate; see `graphpass.verify.on_device` for stand-ins.
        properties: OpenVINO properties of the candidate, by name.
        opened: Opens a session, as `open_session`.
        structure: The comparison of both structures, if it precedes the runs. If it is complete, prompts around the
            lengths and of the token ids that a graph compares with are not run; if it is complete with padding, masks
            and positional encodings are not computed at sampled lengths.
    """

    steps: int = 12
    prompt_ids: tuple[int, ...] | None = None
    atol: float | None = None
    rtol: float | None = None
    edits: bool = False
    examine: bool = False
    padding: Literal["left", "right"] = "left"
    device: str = "CPU"
    properties: Mapping[str, object] | None = None
    opened: Callable[..., DecodeSession] = open_session
    structure: StructureProof | None = None

    def __post_init__(self) -> None:
        """Check steps and tolerances.

        Raises:
            UsageError: GP250, a number is below 0.
        """
        check_numbers(self.steps, self.atol, self.rtol)

    @property
    def is_proven(self) -> bool:
        """Return whether all operators are equal for every input without padding."""
        return self.structure is not None and self.structure.is_complete

    @property
    def is_proven_with_padding(self) -> bool:
        """Return whether all operators are equal for every input."""
        return self.structure is not None and self.structure.is_complete_with_padding

    @property
    def is_strict(self) -> bool:
        """Return whether weights are compared, too: with steps, and without given tolerances."""
        return self.steps > 0 and self.atol is None and self.rtol is None

    def tolerance(self, usual: Tolerance) -> Tolerance:
        """Return the tolerance, with ``usual`` for missing numbers."""
        from graphpass.verify.difference import Tolerance

        absolute, relative = usual.absolute if self.atol is None else self.atol, self.rtol
        return Tolerance(absolute, usual.relative if relative is None else relative)


def check_numbers(steps: int, atol: float | None, rtol: float | None) -> None:
    """Check steps and tolerances.

    Args:
        steps: Number of greedy steps.
        atol: Absolute tolerance, not NaN; ``None`` is valid.
        rtol: Relative tolerance, not NaN; ``None`` is valid.

    Raises:
        UsageError: GP250, a number is below 0.
    """
    if steps < 0:
        raise UsageError("GP250", f"steps is {steps}; expected 0 or more")
    for name, tolerance in (("atol", atol), ("rtol", rtol)):
        if tolerance is not None and not tolerance >= 0:
            raise UsageError("GP250", f"{name} is {tolerance:g}; expected 0 or more")
