"""Hash-consed nodes of expressions, and polynomials of them."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Container, Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias
from weakref import WeakValueDictionary

Sort = Literal["int", "real", "bool"]

Monomial: TypeAlias = "tuple[Expr, ...]"
"""A product of atoms, sorted by `Expr.order`."""

Polynomial: TypeAlias = "dict[Monomial, int]"
"""Coefficients by monomial, never 0; the empty monomial is that of the constant term."""


class Expr:
    """A hash-consed expression, created by `make`.

    Attributes:
        op: Name of the operator.
        args: Operands and parameters; of a ``sum``, pairs of a monomial and its coefficient.
        sort: Type of the value.
        operands: The direct subexpressions.
        order: Sort key of operands: the height, then a digest of the structure. It is the same in every process,
            independent of the order of creation.
        leaves: A Bloom filter of the indices and leaf expressions that it contains. An expression with a bit that is
            not set here is not a subexpression.
        ops: The operators in this expression, as bits of `_OPS`; ``partial`` marks those that may be undefined.
    """

    __slots__ = ("__weakref__", "args", "leaves", "op", "operands", "ops", "order", "sort")

    def __init__(self, op: str, args: tuple[Any, ...], sort: Sort) -> None:
        """Create an expression; `make` calls this only if no equal expression exists."""
        self.op, self.args, self.sort = op, args, sort
        if op == "sum":
            self.operands = tuple(dict.fromkeys(atom for monomial, _ in args for atom in monomial))
        else:
            self.operands = tuple(arg for arg in args if isinstance(arg, Expr))
        height = 1 + max((operand.order >> _DIGEST_BITS for operand in self.operands), default=0)
        digest = hashlib.blake2b(f"{op} {sort} {args}".encode(), digest_size=_DIGEST_BITS // 8).digest()
        self.order = height << _DIGEST_BITS | int.from_bytes(digest, "big")
        self.leaves = 1 << digest[0] if op == "index" or not self.operands else 0
        self.ops = 1 << _OPS.setdefault(op, len(_OPS))
        if sort == "real" and _is_partial(op, args):
            self.ops |= 1 << _OPS.setdefault("partial", len(_OPS))
        for operand in self.operands:
            self.leaves |= operand.leaves
            self.ops |= operand.ops

    @property
    def as_number(self) -> int | float | bool | None:
        """Return the value of a constant; ``None`` for other expressions."""
        return self.args[0] if self.op == "number" else None

    def __repr__(self) -> str:
        # Digests in `Expr.order` hash this text.
        return f"<{self.op} {self.order:x}>"


_DIGEST_BITS = 64

#: Bit of each operator in `Expr.ops`.
_OPS: dict[str, int] = {}


#: Operators and functions that are undefined for some real numbers.
_PARTIAL, _PARTIAL_FUNCTIONS = {"opaque", "quotient", "raise"}, {"log", "power", "sqrt", "vanish"}


def _is_partial(op: str, args: tuple[Any, ...]) -> bool:
    """Return whether an operator may be undefined for some numbers, or is infinite."""
    if op == "number":
        return not math.isfinite(args[0])
    if op == "read":
        return bool(getattr(args[0], "is_partial", False))
    return op in _PARTIAL or (op == "apply" and args[0] in _PARTIAL_FUNCTIONS)


@dataclass(frozen=True, slots=True)
class Identity:
    """A number that distinguishes objects without affecting `Expr.order`."""

    number: int = field(repr=False)


_KNOWN: WeakValueDictionary[tuple[Any, ...], Expr] = WeakValueDictionary()


def make(op: str, args: tuple[Any, ...], sort: Sort) -> Expr:
    """Return the existing expression with these parts, or a new one.

    Args:
        op: Name of the operator, such as ``sum`` or ``choose``.
        args: Operands and parameters in canonical form, see `Expr.args`.
        sort: Type of the value; expressions of different sorts are different.
    """
    # Python compares 1, 1.0 and True as equal.
    key = (op, args, sort, *map(type, args)) if op == "number" else (op, args, sort)
    known = _KNOWN.get(key)
    if known is None:
        known = _KNOWN[key] = Expr(op, args, sort)
    return known


def number(value: float) -> Expr:
    """Return a constant; integral floats become integers."""
    if isinstance(value, bool):
        return TRUE if value else FALSE
    if isinstance(value, float):
        if math.isnan(value):
            # Each NaN is unequal to others, so that keys need one object.
            value = math.nan
        if not math.isfinite(value) or value != int(value):
            return make("number", (value,), "real")
        value = int(value)
    known = _SMALL.get(value)
    if known is None:
        known = make("number", (value,), "int")
        if abs(value) < _MOST_SMALL:
            _SMALL[value] = known
    return known


#: Cache of small integers, the most frequent constants.
_SMALL: dict[int, Expr] = {}
_MOST_SMALL = 1 << 12


TRUE, FALSE = make("number", (True,), "bool"), make("number", (False,), "bool")
ZERO, ONE = make("number", (0,), "int"), make("number", (1,), "int")


def length(name: Hashable, least: int = 0) -> Expr:
    """Return a variable for a length of the step.

    Args:
        name: Key of the variable; equal keys give the same variable.
        least: Minimum value, part of the key.
    """
    return make("length", (name, least), "int")


def index(name: Any, size: Expr, *operands: Expr) -> Expr:
    """Return an index variable from 0 to ``size - 1``; a computed index has operands.

    Args:
        name: Key of the variable; equal keys, sizes and operands give the same variable.
        size: Size of the axis, an integer.
        operands: Expressions that determine a computed index; none for a free variable.
    """
    return make("index", (name, size, *operands), "int")


#: Name of the summation index of a running sum, followed by its depth in nested sums.
SUMMED = "summed"


def is_summed(part: Expr) -> bool:
    """Return whether an expression is the summation index of a running sum."""
    return part.op == "index" and str(part.args[0]).startswith(SUMMED)


def read(source: Any, indices: Iterable[Expr], sort: Sort) -> Expr:
    """Return an element of an input or table.

    Args:
        source: Name of the input, a `Table`, or another hashable key of the tensor.
        indices: Index along each axis.
        sort: Type of the elements.
    """
    return make("read", (source, *indices), sort)


def polynomial(expr: Expr) -> Polynomial:
    """Return the polynomial of an integer expression."""
    if expr.op == "sum":
        return dict(expr.args)
    if expr.op == "number":
        return {(): expr.args[0]} if expr.args[0] else {}
    return {(expr,): 1}


def from_polynomial(terms: Polynomial) -> Expr:
    """Return the integer expression of a polynomial."""
    kept = [(monomial, factor) for monomial, factor in terms.items() if factor]
    if not kept:
        return ZERO
    if len(kept) == 1:
        (monomial, factor), *_ = kept
        if not monomial:
            return number(factor)
        if factor == 1 and len(monomial) == 1:
            return monomial[0]
    kept.sort(key=lambda term: (len(term[0]), *(atom.order for atom in term[0])))
    return make("sum", tuple(kept), "int")


def total(*terms: Polynomial) -> Polynomial:
    """Return the sum of polynomials."""
    result: Polynomial = {}
    for term in terms:
        for monomial, factor in term.items():
            result[monomial] = result.get(monomial, 0) + factor
    return result


def product(first: Polynomial, second: Polynomial) -> Polynomial:
    """Return the product of two polynomials.

    Args:
        first: A factor; empty for 0.
        second: The other factor.
    """
    terms: Polynomial = {}
    for left, factor in first.items():
        for right, times in second.items():
            monomial = tuple(sorted((*left, *right), key=lambda atom: atom.order))
            terms[monomial] = terms.get(monomial, 0) + factor * times
    return terms


def plus(left: Expr, right: Expr) -> Expr:
    """Return the sum of integers as a polynomial, also of choices.

    Args:
        left: A summand.
        right: The other summand.
    """
    return from_polynomial(total(polynomial(left), polynomial(right)))


def times(left: Expr, right: Expr) -> Expr:
    """Return the product of integers as a polynomial, also of choices.

    Args:
        left: A factor.
        right: The other factor.
    """
    return from_polynomial(product(polynomial(left), polynomial(right)))


def minus(left: Expr, right: Expr) -> Expr:
    """Return the difference of integers as a polynomial, also of choices.

    Args:
        left: Minuend.
        right: Subtrahend.
    """
    return plus(left, times(right, number(-1)))


def walk_outside(ops: Collection[str], *roots: Expr) -> Iterator[Expr]:
    """Yield each subexpression of ``roots`` once, without descending into operators ``ops``."""
    seen, pending = set(roots), [*reversed(roots)]
    while pending:
        expr = pending.pop()
        yield expr
        operands = [] if expr.op in ops else [operand for operand in expr.operands if operand not in seen]
        seen.update(operands)
        pending += operands


def walk(*roots: Expr, known: Container[Expr] = ()) -> Iterator[Expr]:
    """Yield each subexpression of ``roots`` once, operands first.

    Expressions in ``known`` are neither yielded nor descended into.
    """
    seen: set[Expr] = set()
    # A tuple marks an expression whose operands are above it on the stack.
    pending: list[Expr | tuple[Expr]] = [*reversed(roots)]
    while pending:
        expr = pending.pop()
        if isinstance(expr, tuple):
            yield expr[0]
        elif expr not in seen and expr not in known:
            seen.add(expr)
            pending.append((expr,))
            pending += expr.operands


def contains(roots: Iterable[Expr], *parts: Expr) -> bool:
    """Return whether any of ``parts`` is a subexpression of any of ``roots``."""
    leaves = {part.leaves for part in parts}
    pending, seen = [*roots], set[Expr]()
    while pending:
        expr = pending.pop()
        if expr in parts:
            return True
        if expr not in seen and any(expr.leaves & wanted == wanted for wanted in leaves):
            seen.add(expr)
            pending += expr.operands
    return False


def uses(roots: Iterable[Expr], *ops: str) -> bool:
    """Return whether any of ``roots`` contains an operator of ``ops``."""
    bits = sum(1 << _OPS[op] for op in ops if op in _OPS)
    return any(root.ops & bits for root in roots)
