"""Effective masks of attention blocks, as symbolic expressions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from graphpass.analysis.symbolic import expressions as ex
from graphpass.analysis.symbolic.expressions import ZERO, Expr
from graphpass.analysis.symbolic.step import is_input
from graphpass.analysis.symbolic.text import expression_text
from graphpass.ir.cache import MaskPart
from graphpass.ir.graph import Node
from graphpass.ir.miss import Miss

#: Components of masks, in the order of reports.
MASK_PARTS: tuple[MaskPart, ...] = ("causal", "input", "lengths", "alibi", "bias")


@dataclass(frozen=True, slots=True)
class Scope:
    """Symbolic indices of one score, in ``[batch, heads, queries, keys]``."""

    row: Expr
    head: Expr
    query: Expr
    key: Expr

    @property
    def position(self) -> Expr:
        """Return the index of the query among the keys."""
        return ex.add(ex.subtract(self.key.args[1], self.query.args[1]), self.query)


@dataclass(frozen=True, slots=True)
class AttentionMask:
    """The effective mask of one attention block, for every batch, past and length.

    Attributes:
        node: The fused operator, or the Softmax.
        scope: The indices in the expressions.
        visible: Condition under which the query attends to the key.
        bias: Number added to the score of a visible key.
        is_causal: Whether keys after the query are excluded.
        window: Number of latest positions that a query attends to, itself included; the smallest of several windows.
        chunk: Number of positions in a chunk; a query attends only to keys in its own chunk.
        is_padded: Whether an input ``[batch, keys]`` such as ``attention_mask`` excludes keys.
        has_lengths: Whether keys are limited by a length of each row.
        slopes: Slopes of ALiBi, ``[heads]``, if the bias is only ALiBi.
        residue: Conditions of ``visible`` that no other attribute describes.
        misses: Unknown parts, with node and reason.
    """

    node: Node
    scope: Scope
    visible: Expr
    bias: Expr
    is_causal: bool = False
    window: int | None = None
    chunk: int | None = None
    is_padded: bool = False
    has_lengths: bool = False
    slopes: tuple[float, ...] | None = None
    residue: tuple[Expr, ...] = ()
    misses: tuple[Miss, ...] = ()

    @property
    def parts(self) -> tuple[MaskPart, ...] | None:
        """Return the components of the mask; ``None`` if some are unknown."""
        if self.misses or not all(any(map(is_input, ex.walk(part))) for part in self.residue):
            return None
        reads = any(is_input(part) for part in ex.walk(*self.residue, self.bias))
        present: dict[MaskPart, bool] = {
            "causal": self.is_causal,
            "input": self.is_padded or reads,
            "lengths": self.has_lengths,
            "alibi": self.slopes is not None,
            "bias": not (self.slopes is not None or all(leaf is ZERO or is_input(leaf) for leaf in _leaves(self.bias))),
        }
        return tuple(part for part in MASK_PARTS if present[part])

    @property
    def counts_positions(self) -> bool:
        """Return whether running sums of ``attention_mask`` give the positions of keys."""
        return ex.uses([self.visible], "running_sum")

    @property
    def reads_positions(self) -> bool:
        """Return whether an input of positions decides which keys are visible."""
        return any(is_input(part) and part.sort == "int" for part in ex.walk(self.visible))

    @property
    def window_of_tokens(self) -> int | None:
        """Return the window if it counts tokens only by ``attention_mask``; ``None`` otherwise."""
        reads = {part.args[0] for part in ex.walk(self.visible) if is_input(part)}
        return self.window if self.counts_positions and reads == {"attention_mask"} else None


def plain_mask(mask: AttentionMask) -> AttentionMask | Miss:
    """Return ``mask`` if it has only causal, window and padding components, or a miss."""
    others = [part for part in mask.parts or () if part in {"alibi", "lengths"}]
    inputs = [part for part in ex.walk(mask.visible, mask.bias) if is_input(part)]
    further = sorted({part.args[0] for part in inputs if part.sort != "bool" or part.args[0] != "attention_mask"})
    if mask.misses:
        return mask.misses[0]
    if others:
        return Miss(mask.node, f"its mask has components other than causal, window and padding: {', '.join(others)}")
    if mask.bias is not ZERO:
        return Miss(mask.node, "its mask adds a bias to the scores of visible keys")
    if further:
        return Miss(mask.node, f"its mask reads input {further[0]}")
    if mask.chunk is not None:
        return Miss(mask.node, f"its mask limits attention to chunks of {mask.chunk} positions")
    if mask.residue:
        return Miss(mask.node, f"its mask hides other positions, unless {expression_text(mask.residue[0])}")
    return mask if mask.is_causal else Miss(mask.node, "its mask is not causal")


def _leaves(expr: Expr) -> Iterator[Expr]:
    """Yield the alternatives of nested ``choose`` expressions."""
    pending = [expr]
    while pending:
        leaf = pending.pop()
        if leaf.op == "choose":
            pending += leaf.args[1:]
        else:
            yield leaf
