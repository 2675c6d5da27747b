"""Definitions: tensors as functions of indices, equal if they are written alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from graphpass.analysis.symbolic import expressions as ex
from graphpass.analysis.symbolic.bounds import quotient
from graphpass.analysis.symbolic.expressions import ONE, ZERO, Expr, number
from graphpass.analysis.symbolic.places import digits
from graphpass.verify.structure.algebra import Algebra
from graphpass.verify.structure.conditions import limited, on_indices
from graphpass.verify.structure.masks import KnownMasks


@dataclass(frozen=True, slots=True)
class Definition:
    """A function of indices; expressions read its elements.

    Attributes:
        kind: ``sum``, ``softmax``, or an operator that is known by its operands alone.
        parameters: Further things that the function depends on.
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

        return self._branches(self.algebra.cases(body, is_apart), bounds, is_apart)

    def _branches(self, body: Expr, bounds: Sequence[Expr], apart: Callable[[Expr], bool]) -> Expr:
        """Sum each case; leave conditions on other indices outside."""
        if not (body.op == "choose" and on_indices(body.args[0]) and apart(body.args[0])):
            return self._sum(body, bounds)
        sides = []
        for branch, holds in zip(body.args[1:], (True, False), strict=True):
            limit = limited(body.args[0], holds)
            if limit is None:
                sides.append(self._branches(branch, bounds, apart))
                continue
            # Parts of joined weights are sums of their own, counted from 0.
            ((one, shifted),) = limit.items()
            found = self._branches(self.algebra.normal(ex.substitute(branch, limit)), bounds, apart)
            if shifted.op != "number":
                inner = next(part for part in ex.walk(shifted) if part.op == "index")
                found = ex.substitute(found, {inner: ex.subtract(one, ex.subtract(shifted, inner))})
            sides.append(found)
        return ex.choose(body.args[0], *sides)

    def _sum(self, body: Expr, bounds: Sequence[Expr]) -> Expr:
        """Sum one case; leave factors of other indices outside."""
        factors = body.args if body.op == "times" else (body,)
        inside = [factor for factor in factors if set(bounds) & set(ex.walk(factor))]
        outside = [factor for factor in factors if factor not in inside]
        used = {part for factor in inside for part in ex.walk(factor)}
        outside += [bound.args[1] for bound in bounds if bound not in used]
        if not inside:
            return self.algebra.times(*outside)
        kept = [bound for bound in bounds if bound in used]
        summed = self.abstract("sum", (), (self.algebra.times(*inside),), kept)
        return self.algebra.times(*outside, summed)

    def softmax(self, visible: Expr, score: Expr, along: Expr) -> Expr:
        """Return the share of the key ``along``; keys that are not visible have none."""
        terms = score.args if (score := self.algebra.normal(score)).op == "real_sum" else (score,)
        # A number added to all keys changes nothing.
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
        bodies, bounds, arguments = self._split(bodies, bounds)
        # Cases that never hold read elements, too.
        # A case decides others, which are conditions of fewer indices then.
        bodies = [self.algebra.cases(self.algebra.cases(body)) for body in bodies]
        order = variables(bodies[:1])
        order += [one for one in variables(bodies) if one not in order]
        places, given = dict[Expr, Expr](), list[Expr]()
        for letter, group in (("v", [one for one in order if one not in bounds]), ("r", bounds)):
            for place, one in enumerate(sorted(group, key=order.index)):
                places[one] = ex.index(f"{letter}{place}", one.args[1])
                if letter == "v" or reads_bound:
                    given.append(arguments.get(one, one))
        renamed = tuple(self.algebra.cases(ex.substitute(body, places)) for body in bodies)
        if kind == "softmax":
            renamed = (renamed[0], self.masks.known(renamed[1], places[bounds[-1]]))
        outside = 1.0
        if kind == "sum" and (outside := self.algebra.leading(renamed[0])) != 1:
            renamed = (self.algebra.scaled(renamed[0], 1 / outside),)
        found = ex.read(Definition(kind, parameters, renamed), given, "real")
        return found if outside == 1 else self.algebra.times(number(outside), found)

    def _split(
        self, bodies: Sequence[Expr], bounds: Sequence[Expr]
    ) -> tuple[Sequence[Expr], list[Expr], dict[Expr, Expr]]:
        """Write indices that are divided by a number as two: quotient and remainder.

        Returns:
            The bodies, the bound indices, and the numbers that the new indices stand for.
        """
        bounds, arguments = list(bounds), dict[Expr, Expr]()
        pending = variables(bodies)
        while pending:
            one = pending.pop()
            by = _divisor(one, bodies)
            if by is None:
                continue
            (divisor, count), whole = by, arguments.pop(one, one)
            parts = ex.index(f"{one.args[0]}/", count), ex.index(f"{one.args[0]}%", divisor)
            places = {one: ex.add(ex.multiply(divisor, parts[0]), parts[1])}
            places |= zip((ex.floor_divide(one, divisor), ex.modulo(one, divisor)), parts, strict=True)
            bodies = [self.algebra.normal(ex.substitute(body, places)) for body in bodies]
            arguments |= zip(parts, digits(whole, divisor), strict=True)
            if one in bounds:
                place = bounds.index(one)
                bounds[place : place + 1] = parts
            pending += parts
        return bodies, [one for one in bounds if one in set(ex.walk(*bodies))], arguments


def _divisor(variable: Expr, bodies: Sequence[Expr]) -> tuple[Expr, Expr] | None:
    """Return a size by which an index is divided, and the number of such parts."""
    size = variable.args[1]
    found = {
        part.args[1]
        for part in ex.walk(*bodies)
        if part.op in {"floor_quotient", "modulo"} and part.args[0] is variable and part.args[1].as_number != 1
    }
    whole = [(by, count) for by in found if (count := quotient(size, by)) is not None and count is not ONE]
    return min(whole, key=lambda pair: (pair[0].as_number or 0, pair[0].serial), default=None)


def variables(bodies: Sequence[Expr]) -> list[Expr]:
    """Return the indices in ``bodies``, ordered by the reads that use them."""
    places: dict[Expr, set[object]] = {}
    for part in ex.walk(*bodies):
        if part.op == "index":
            places.setdefault(part, set())
        if part.op != "read":
            continue
        for place, argument in enumerate(part.args[1:]):
            for monomial, factor in ex.polynomial(argument).items():
                for atom in monomial:
                    for one in ex.walk(atom):
                        if one.op == "index":
                            use = part.args[0], place, factor, len(monomial), atom.op
                            places.setdefault(one, set()).add(use)
    # Python's hashes of text differ between processes.
    order = {one: (one.args[1].serial, sorted(map(repr, uses))) for one, uses in places.items()}
    return sorted(places, key=lambda one: order[one])
