"""Definitions: tensors as functions of indices, equal if they are written alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from graphpass.analysis.symbolic import expressions as ex
from graphpass.analysis.symbolic.bounds import divided
from graphpass.analysis.symbolic.expressions import ONE, ZERO, Expr, number
from graphpass.verify.structure.algebra import Algebra, on_indices
from graphpass.verify.structure.masks import KnownMasks


@dataclass(frozen=True, slots=True)
class Definition:
    """A function of indices; expressions read its elements.

    Attributes:
        kind: ``sum``, ``softmax``, or an operator that is known by its operands alone.
        parameters: What else the function depends on.
        bodies: Expressions of the indices ``v0``, ``v1`` ... and of bound indices ``r0`` ...
    """

    kind: str
    parameters: tuple[Any, ...]
    bodies: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Weight:
    """A constant that expressions read, known by its contents.

    Attributes:
        digest: Hash of shape and elements.
        name: Its name in the first model that has it.
    """

    digest: str
    name: str = field(compare=False)


class Definitions:
    """Make definitions of both graphs.

    Attributes:
        algebra: Normal forms.
        masks: Conditions of visible keys that were shown to be equal.
    """

    def __init__(self, algebra: Algebra, masks: KnownMasks) -> None:
        """Begin with none."""
        self.algebra, self.masks = algebra, masks

    def sum(self, body: Expr, *bounds: Expr) -> Expr:
        """Return the sum of ``body`` for all values of ``bounds``."""
        within = set(bounds)

        def is_apart(condition: Expr) -> bool:
            return not within & set(ex.walk(condition))

        body = self.algebra.cases(body, is_apart)
        # Conditions that the sum does not run over are left outside.
        outside, branches = _leaves(body, is_apart)
        sums = {branch: self._sum(branch, bounds) for branch in branches}
        return outside if not branches else self._joined(body, sums)

    def _joined(self, body: Expr, sums: Mapping[Expr, Expr]) -> Expr:
        if body in sums:
            return sums[body]
        condition, one, other = body.args
        return ex.choose(condition, self._joined(one, sums), self._joined(other, sums))

    def _sum(self, body: Expr, bounds: Sequence[Expr]) -> Expr:
        """Return the sum of one case; factors that it does not run over are left outside."""
        factors = body.args if body.op == "times" else (body,)
        inside = [factor for factor in factors if set(bounds) & set(ex.walk(factor))]
        outside = [factor for factor in factors if factor not in inside]
        used = {part for factor in inside for part in ex.walk(factor)}
        for bound in bounds:
            if bound not in used:
                outside.append(bound.args[1])
        if not inside:
            return self.algebra.times(*outside)
        kept = [bound for bound in bounds if bound in used]
        summed = self.abstract("sum", (), (self.algebra.times(*inside),), kept)
        return self.algebra.times(*outside, summed)

    def softmax(self, visible: Expr, score: Expr, along: Expr) -> Expr:
        """Return the share of the key ``along``; keys that are not visible have none."""
        terms = score.args if (score := self.algebra.normal(score)).op == "real_sum" else (score,)
        # What is added to all keys changes nothing.
        score = ex.add(ZERO, *(term for term in terms if along in set(ex.walk(term))))
        score = self.algebra.cases(score)
        return self.abstract("softmax", (), (score, visible), [along], reads_bound=True)

    def abstract(
        self,
        kind: str,
        parameters: tuple[Any, ...],
        bodies: Sequence[Expr],
        bounds: Sequence[Expr],
        *,
        reads_bound: bool = False,
    ) -> Expr:
        """Return the element of a definition at the indices that its bodies are written for.

        Args:
            kind: See `Definition`.
            parameters: See `Definition`.
            bodies: Expressions.
            bounds: Indices that the function runs over.
            reads_bound: Whether the function depends on the bound indices, too.
        """
        wanted = list(bodies)
        order = variables(bodies)
        places: dict[Expr, Expr] = {}
        free = [one for one in order if one not in bounds]
        arguments: list[Expr] = []
        named: list[Expr] = []
        for letter, group in (("v", free), ("r", [one for one in order if one in bounds])):
            count = 0
            for one in group:
                split = _split(one, bodies)
                sizes = [one.args[1]] if split is None else [number(one.args[1].args[0] // split), number(split)]
                parts = [ex.index(f"{letter}{count + place}", size) for place, size in enumerate(sizes)]
                count += len(parts)
                if split is None:
                    places[one] = parts[0]
                    own = [one]
                else:
                    divisor = number(split)
                    places[one] = ex.add(ex.multiply(divisor, parts[0]), parts[1])
                    places[ex.floor_divide(one, divisor)], places[ex.modulo(one, divisor)] = parts
                    own = [ex.floor_divide(one, divisor), ex.modulo(one, divisor)]
                if letter == "v" or reads_bound:
                    arguments += own
                    named += parts
        renamed = tuple(self.algebra.cases(ex.substitute(body, places)) for body in wanted)
        if kind == "softmax":
            renamed = (renamed[0], self.masks.known(renamed[1], named[-1]))
        return ex.read(Definition(kind, parameters, renamed), arguments, "real")


def _leaves(body: Expr, apart: Any) -> tuple[Expr, list[Expr]]:
    """Return the expressions that leading conditions choose between."""
    found, pending = [], [body]
    while pending:
        part = pending.pop()
        if part.op == "choose" and on_indices(part.args[0]) and apart(part.args[0]):
            pending += part.args[1:]
        else:
            found.append(part)
    return body, found


def _split(variable: Expr, bodies: Sequence[Expr]) -> int | None:
    """Return a number by which an index is divided throughout: of the heads that share keys."""
    size = variable.args[1].as_number
    if not isinstance(size, int):
        return None
    found = {
        part.args[1].as_number
        for part in ex.walk(*bodies)
        if part.op in {"floor_quotient", "modulo"} and part.args[0] is variable
    }
    known = [by for by in found if isinstance(by, int) and by > 1 and size % by == 0]
    return min(known, default=None)


def variables(bodies: Sequence[Expr]) -> list[Expr]:
    """Return the indices in ``bodies`` in an order that does not depend on their names."""
    forms: dict[Expr, int] = {}
    for part in ex.walk(*bodies):
        if part.op == "index":
            forms[part] = hash(("index", part.args[1]))
        elif part.op == "sum":
            forms[part] = hash(frozenset((frozenset(forms[atom] for atom in key), by) for key, by in part.args))
        elif part.op in _COMMUTATIVE:
            forms[part] = hash((part.op, frozenset(forms[one] for one in part.operands)))
        else:
            forms[part] = hash((part.op, *(forms[arg] if isinstance(arg, Expr) else arg for arg in part.args)))
    found: dict[Expr, None] = {}
    seen: set[Expr] = set()
    pending = [*reversed(bodies)]
    while pending:
        part = pending.pop()
        if part in seen:
            continue
        seen.add(part)
        if part.op == "index":
            found[part] = None
            continue
        operands = list(part.operands)
        if part.op in _COMMUTATIVE or part.op == "sum":
            operands.sort(key=lambda one: forms[one])
        pending += reversed(operands)
    return list(found)


_COMMUTATIVE = frozenset({"real_sum", "times", "product", "and", "or", "equal"})

__all__ = ["ONE", "Definition", "Definitions", "Weight", "divided", "variables"]
