"""Expressions of one tensor element, hash-consed and normalized at construction.

Integers are polynomials of atoms with integer coefficients. Comparisons of integers are ``polynomial <= 0`` or
``polynomial == 0``. Booleans are flat conjunctions and disjunctions. Structurally equal expressions are the same
object. Arithmetic is exact: values of f32 and f64 are real numbers, and integers if they are integral; values of f16
and bf16 are rounded (`round_to`).
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache, partial
from typing import Any, Literal

from graphpass.analysis.symbolic.bounds import is_natural
from graphpass.analysis.symbolic.nodes import (
    FALSE,
    ONE,
    TRUE,
    ZERO,
    Expr,
    Polynomial,
    Sort,
    contains,
    from_polynomial,
    index,
    length,
    make,
    number,
    polynomial,
    product,
    read,
    total,
    uses,
    walk,
)
from graphpass.analysis.symbolic.rounding import rounded_to

__all__ = [
    "FALSE",
    "ONE",
    "RELATIONS",
    "TRUE",
    "ZERO",
    "Expr",
    "Sort",
    "add",
    "apply",
    "as_defined",
    "at_most",
    "choose",
    "conjunction",
    "contains",
    "disjunction",
    "divide",
    "equal",
    "floor_divide",
    "holds",
    "index",
    "length",
    "less",
    "make",
    "maximum",
    "minimum",
    "modulo",
    "multiply",
    "negate",
    "negative",
    "number",
    "polynomial",
    "read",
    "rebuild",
    "round_to",
    "running_sum",
    "substitute",
    "subtract",
    "uses",
    "walk",
]


def apply(function: str, operands: Iterable[Expr], sort: Sort = "real") -> Expr:
    """Return an uninterpreted function of numbers; ``exp(-inf)`` is 0.

    Args:
        function: Name of the function, such as ``exp`` or ``power``.
        operands: Arguments of the function, in order.
        sort: Type of the result.
    """
    arguments = tuple(operands)
    if function == "exp" and arguments[0].as_number == -math.inf:
        return number(0.0)
    return make("apply", (function, *arguments), sort)


def running_sum(body: Expr, bound: Expr, upper: Expr) -> Expr:
    """Return the sum of a term over an index from 0 on.

    Args:
        body: The term, an integer expression of ``bound``.
        bound: Index variable to sum over.
        upper: Last value of ``bound``, inclusive.
    """
    value = body.as_number
    if isinstance(value, int) and body.sort == "int":
        return multiply(body, add(upper, ONE))
    return make("running_sum", (body, bound, upper), "int")


# Integers


def _as_integer(expr: Expr) -> Expr:
    return choose(expr, ONE, ZERO) if expr.sort == "bool" else expr


def add(*operands: Expr) -> Expr:
    """Return the sum; booleans count as 0 and 1."""
    terms = [_as_integer(operand) for operand in operands if operand is not ZERO]
    if len(terms) < 2:
        return terms[0] if terms else ZERO
    if all(term.op == "number" and term.sort == "int" for term in terms):
        return number(sum(term.args[0] for term in terms))
    if len(terms) == 2 and (distributed := _distributed(add, *terms)) is not None:
        return distributed
    if all(term.sort == "int" for term in terms):
        return from_polynomial(total(*map(polynomial, terms)))
    flat = [part for term in terms for part in (term.args if term.op == "real_sum" else (term,))]
    constants = [part.args[0] for part in flat if part.op == "number"]
    constant = math.fsum(constants) if all(map(math.isfinite, constants)) else sum(constants)
    rest = sorted((part for part in flat if part.op != "number"), key=lambda part: part.order)
    kept = [*rest, number(constant)] if constant or not rest else rest
    return kept[0] if len(kept) == 1 else make("real_sum", tuple(kept), "real")


def multiply(left: Expr, right: Expr) -> Expr:
    """Return the product; booleans count as 0 and 1.

    Args:
        left: A factor of any sort.
        right: The other factor, of any sort.
    """
    left, right = _as_integer(left), _as_integer(right)
    if (distributed := _distributed(multiply, left, right)) is not None:
        return distributed
    if ZERO in (left, right) and not uses((left, right), "partial"):
        return ZERO
    if ONE in (left, right):
        return right if left is ONE else left
    if left.sort == right.sort == "int":
        factors = polynomial(left), polynomial(right)
        if _is_large(*factors):
            return make("product", tuple(sorted((left, right), key=lambda operand: operand.order)), "int")
        return from_polynomial(product(*factors))
    if left.op == right.op == "number":
        return number(left.args[0] * right.args[0])
    for factor, rest in ((left, right), (right, left)):
        constants = [part for part in rest.args if part.op == "number"] if rest.op == "product" else []
        if factor.op == "number" and constants:
            (others,) = (part for part in rest.args if part.op != "number")
            return multiply(number(factor.args[0] * constants[0].args[0]), others)
    return make("product", tuple(sorted((left, right), key=lambda operand: operand.order)), "real")


#: Limits of expanded products of integers: degree, number of terms, bits of coefficients. Sizes of an untrusted graph
#: may grow exponentially by repeated squares. The largest numbers of f32 have 128 bits.
_MOST_FACTORS, _MOST_TERMS, _MOST_BITS = 8, 256, 256


def _is_large(left: Polynomial, right: Polynomial) -> bool:
    """Return whether the product of two polynomials exceeds the limits of expansion."""
    degrees, bits = (
        [max(map(measure, parts), default=0) for parts in (left.items(), right.items())]
        for measure in (lambda term: len(term[0]), lambda term: term[1].bit_length())
    )
    return sum(degrees) > _MOST_FACTORS or sum(bits) > _MOST_BITS or len(left) * len(right) > _MOST_TERMS


def negative(operand: Expr) -> Expr:
    """Return the negative."""
    if operand.sort == "int" and operand.op != "choose":
        return from_polynomial({monomial: -factor for monomial, factor in polynomial(operand).items()})
    return multiply(number(-1), operand)


def subtract(left: Expr, right: Expr) -> Expr:
    """Return the difference; booleans count as 0 and 1.

    Args:
        left: Minuend of any sort.
        right: Subtrahend of any sort.
    """
    if left is right and not uses([left], "partial"):
        return ZERO
    if left.op == right.op == "number" and left.sort == right.sort == "int":
        return number(left.args[0] - right.args[0])
    return add(left, negative(right))


def divide(left: Expr, right: Expr) -> Expr:
    """Return the quotient of real numbers; booleans count as 0 and 1.

    Args:
        left: Dividend of any sort.
        right: Divisor of any sort; the constant 0 is not folded.
    """
    left, right = _as_integer(left), _as_integer(right)
    divisor = right.as_number
    if divisor == 1:
        return left
    if divisor and left.op == "number":
        return number(left.args[0] / divisor)
    if isinstance(divisor, int) and divisor and left.sort == "int":
        terms = polynomial(left)
        if all(factor % divisor == 0 for factor in terms.values()):
            return from_polynomial({monomial: factor // divisor for monomial, factor in terms.items()})
    if divisor and math.isfinite(divisor):
        return multiply(left, number(1 / divisor))
    return make("quotient", (left, right), "real")


def floor_divide(left: Expr, right: Expr) -> Expr:
    """Return the quotient of integers, rounded down.

    Args:
        left: Dividend.
        right: Divisor of either sign; the constant 0 is not folded.
    """
    if left.op == right.op == "number" and right.args[0]:
        return number(left.args[0] // right.args[0])
    return (
        divide(left, right) if right is ONE or _divides(right, left) else make("floor_quotient", (left, right), "int")
    )


def modulo(left: Expr, right: Expr) -> Expr:
    """Return the remainder of `floor_divide`.

    Args:
        left: Dividend, an integer.
        right: Divisor, whose sign the remainder has; the constant 0 is not folded.
    """
    if left.op == right.op == "number" and right.args[0]:
        return number(left.args[0] % right.args[0])
    return ZERO if _divides(right, left) else make("modulo", (left, right), "int")


def _divides(divisor: Expr, operand: Expr) -> bool:
    by = divisor.as_number
    return isinstance(by, int) and by > 0 and all(factor % by == 0 for factor in polynomial(operand).values())


def maximum(left: Expr, right: Expr) -> Expr:
    """Return the larger number.

    Args:
        left: A number of any sort; booleans count as 0 and 1.
        right: The other number, of any sort.
    """
    return _extreme(left, right, _at_most(right, left), _at_most(left, right))


def minimum(left: Expr, right: Expr) -> Expr:
    """Return the smaller number.

    Args:
        left: A number of any sort; booleans count as 0 and 1.
        right: The other number, of any sort.
    """
    return _extreme(left, right, _at_most(left, right), _at_most(right, left))


def _extreme(left: Expr, right: Expr, takes_left: Expr, takes_right: Expr) -> Expr:
    # Bounds may decide only one of the comparisons: both hold for equal numbers.
    return _as_integer(right) if takes_right is TRUE else choose(takes_left, _as_integer(left), _as_integer(right))


# Comparisons and conditions


#: Comparisons of numbers.
RELATIONS: dict[str, Callable[[Any, Any], Any]] = {"at_most": operator.le, "equal": operator.eq, "less": operator.lt}


def at_most(left: Expr, right: Expr) -> Expr:
    """Return the condition ``left <= right``.

    Args:
        left: A number of any sort; booleans count as 0 and 1.
        right: The upper bound, of any sort.
    """
    return _compared("at_most", left, right)


def less(left: Expr, right: Expr) -> Expr:
    """Return the condition ``left < right``.

    Args:
        left: A number of any sort; booleans count as 0 and 1.
        right: The exclusive upper bound, of any sort.
    """
    return _compared("less", left, right)


def equal(left: Expr, right: Expr) -> Expr:
    """Return the condition that two numbers, or two conditions, are equal.

    Args:
        left: A number or condition; a condition compared with a number counts as 0 or 1.
        right: The other number or condition.
    """
    if left.sort == right.sort == "bool":
        return disjunction(conjunction(left, right), conjunction(negate(left), negate(right)))
    return _compared("equal", left, right)


def _compared(relation: str, left: Expr, right: Expr) -> Expr:
    """Return a comparison of numbers.

    A comparison with a number that may be undefined is a separate condition: ``log(x) < 0`` and ``log(x) >= 0`` are
    both false where ``x`` is negative.
    """
    left, right = _as_integer(left), _as_integer(right)
    if (distributed := _distributed(partial(_compared, relation), left, right)) is not None:
        return distributed
    if left.op == right.op == "number":
        return number(RELATIONS[relation](left.args[0], right.args[0]))
    if any(operand.sort == "real" and uses([operand], "partial") for operand in (left, right)):
        operands = sorted((left, right), key=lambda operand: operand.order) if relation == "equal" else (left, right)
        return make("compared", (relation, *operands), "bool")
    return _of_defined(relation, left, right)


def as_defined(comparison: Expr) -> Expr:
    """Return a comparison whose numbers are proven to be defined for every input.

    Args:
        comparison: An expression ``compared``.
    """
    return _of_defined(*comparison.args)


def _of_defined(relation: str, left: Expr, right: Expr) -> Expr:
    if relation == "less":
        return negate(_at_most(right, left))
    return (_at_most if relation == "at_most" else _equal)(left, right)


def _at_most(left: Expr, right: Expr) -> Expr:
    """Return ``left <= right`` of defined numbers, or as the condition of an extreme."""
    left, right = _as_integer(left), _as_integer(right)
    if (distributed := _distributed(_at_most, left, right)) is not None:
        return distributed
    if left.op == right.op == "number":
        return number(left.args[0] <= right.args[0])
    if left.sort == right.sort == "int":
        return _not_positive(subtract(left, right))
    bound = right.as_number if left.sort == "int" else left.as_number if right.sort == "int" else None
    if bound is not None and not math.isnan(bound):
        # An integer compared with a real constant.
        if math.isinf(bound):
            return number((bound > 0) == (left.sort == "int"))
        return (
            at_most(left, number(math.floor(bound))) if left.sort == "int" else at_most(number(math.ceil(bound)), right)
        )
    return make("at_most", (left, right), "bool")


def _equal(left: Expr, right: Expr) -> Expr:
    """Return ``left == right`` for numbers that are defined."""
    if left is right:
        return TRUE
    if left.op == right.op == "number":
        return number(left.args[0] == right.args[0])
    if left.sort == right.sort == "int":
        return _zero(subtract(left, right))
    return make("equal", tuple(sorted((left, right), key=lambda operand: operand.order)), "bool")


def _not_positive(expr: Expr) -> Expr:
    """Return ``expr <= 0``."""
    value = expr.as_number
    if value is not None:
        return number(value <= 0)
    if is_natural(negative(expr)):
        return TRUE
    if is_natural(subtract(expr, ONE)):
        return FALSE
    terms = polynomial(expr)
    divisor = math.gcd(*(factor for monomial, factor in terms.items() if monomial))
    if divisor > 1:
        terms = {monomial: factor // divisor for monomial, factor in terms.items() if monomial} | {
            (): -(-terms.get((), 0) // divisor)
        }
        return _not_positive(from_polynomial(terms))
    return make("not_positive", (expr,), "bool")


def _zero(expr: Expr) -> Expr:
    """Return ``expr == 0``."""
    terms = polynomial(expr)
    divisor = math.gcd(*(factor for monomial, factor in terms.items() if monomial))
    if terms.get((), 0) % (divisor or 1):
        return FALSE
    if is_natural(subtract(expr, ONE)) or is_natural(subtract(negative(expr), ONE)):
        return FALSE
    first = next((factor for monomial, factor in terms.items() if monomial), 1)
    by = divisor if first > 0 else -divisor
    return make("zero", (from_polynomial({monomial: factor // by for monomial, factor in terms.items()}),), "bool")


def negate(operand: Expr) -> Expr:
    """Return the negation."""
    if operand.op == "number":
        return number(not operand.args[0])
    if operand.op == "not":
        negated: Expr = operand.args[0]
        return negated
    return _inverse(operand)


@lru_cache(maxsize=1 << 14)
def _inverse(operand: Expr) -> Expr:
    """Return the negation; computed once, because nested and long conditions share operands."""
    if operand.op == "not_positive":
        return _not_positive(subtract(ONE, operand.args[0]))
    if operand.op in {"and", "or"}:
        return _joined("or" if operand.op == "and" else "and", map(negate, operand.args))
    return make("not", (operand,), "bool")


def conjunction(*operands: Expr) -> Expr:
    """Return whether all conditions hold."""
    return _joined("and", operands)


def disjunction(*operands: Expr) -> Expr:
    """Return whether any condition holds."""
    return _joined("or", operands)


def _joined(op: Literal["and", "or"], operands: Iterable[Expr]) -> Expr:
    neutral, decisive = (TRUE, FALSE) if op == "and" else (FALSE, TRUE)
    flat = {part for operand in operands for part in (operand.args if operand.op == op else (operand,))} - {neutral}
    if decisive in flat or any(negate(part) in flat for part in flat if part.op not in {"and", "or"}):
        return decisive
    dual: Literal["and", "or"] = "or" if op == "and" else "and"
    for part in sorted((part for part in flat if part.op == dual), key=lambda part: part.order):
        kept = [operand for operand in part.args if negate(operand) not in flat]
        if len(kept) < len(part.args) or any(operand in flat for operand in part.args):
            # The other operands decide some operands of ``part``, or all.
            rest = [] if any(operand in flat for operand in part.args) else [_joined(dual, kept)]
            return _joined(op, [*(flat - {part}), *rest])
    ordered = sorted(_without_implied(op, flat), key=lambda part: part.order)
    return neutral if not ordered else ordered[0] if len(ordered) == 1 else make(op, tuple(ordered), "bool")


#: Maximum number of comparisons in one conjunction or disjunction that are checked for implications.
_MOST_COMPARED = 16


def _without_implied(op: Literal["and", "or"], parts: set[Expr]) -> set[Expr]:
    """Return operands without comparisons implied by others (``and``), or implying others (``or``)."""
    compared = sorted((part for part in parts if part.op == "not_positive"), key=lambda part: part.order)
    if not 1 < len(compared) <= _MOST_COMPARED:
        return parts
    dropped: set[Expr] = set()
    for condition in compared:
        for other in compared:
            if condition is not other and other not in dropped and condition not in dropped:
                stronger, weaker = (other, condition) if op == "and" else (condition, other)
                if is_natural(subtract(stronger.args[0], weaker.args[0])):
                    dropped.add(condition)
    return parts - dropped


def holds(operand: Expr) -> Expr:
    """Return the condition that a number is not 0; conditions are unchanged."""
    return operand if operand.sort == "bool" else negate(equal(operand, ZERO))


def choose(condition: Expr, then: Expr, otherwise: Expr) -> Expr:
    """Return one of two values by a condition.

    Args:
        condition: A boolean.
        then: The value if the condition holds, of any sort.
        otherwise: The value if it does not; if only one value is boolean, it counts as 0 or 1.
    """
    if condition is TRUE or then is otherwise:
        return then
    if condition is FALSE:
        return otherwise
    if then.sort == otherwise.sort == "bool":
        return disjunction(conjunction(condition, then), conjunction(negate(condition), otherwise))
    then, otherwise = _as_integer(then), _as_integer(otherwise)
    if condition.op == "not":
        return choose(condition.args[0], otherwise, then)
    if then.op == "choose" and then.args[0] is condition:
        then = then.args[1]
    if otherwise.op == "choose" and otherwise.args[0] is condition:
        otherwise = otherwise.args[2]
    if then is otherwise:
        return then
    if then.op == "choose" and otherwise in then.args[1:]:
        inner, first, second = then.args
        kept = inner if second is otherwise else negate(inner)
        return choose(conjunction(condition, kept), first if second is otherwise else second, otherwise)
    if otherwise.op == "choose" and then in otherwise.args[1:]:
        inner, first, second = otherwise.args
        kept = inner if first is then else negate(inner)
        return choose(disjunction(condition, kept), then, second if first is then else first)
    return make("choose", (condition, then, otherwise), "int" if then.sort == otherwise.sort == "int" else "real")


#: Maximum number of constants in nested choices over which a function is distributed.
_MOST_CHOICES = 8


def _distributed(function: Callable[[Expr, Expr], Expr], left: Expr, right: Expr) -> Expr | None:
    """Return a function distributed over choices between constants; ``None`` for other operands."""
    if "choose" not in (left.op, right.op):
        return None
    counts = _choices(left), _choices(right)
    if None in counts or (counts[0] or 1) * (counts[1] or 1) > _MOST_CHOICES:
        return None
    if left.op == "choose":
        return choose(left.args[0], function(left.args[1], right), function(left.args[2], right))
    return choose(right.args[0], function(left, right.args[1]), function(left, right.args[2]))


def _choices(expr: Expr) -> int | None:
    """Return the number of constants in nested choices; ``None`` for other leaves or too many."""
    count, pending = 0, [expr]
    while pending:
        part = pending.pop()
        if part.op == "choose":
            pending += part.args[1:]
        elif part.op != "number":
            return None
        else:
            count += 1
        if count > _MOST_CHOICES:
            return None
    return count


def round_to(element_type: str, operand: Expr) -> Expr:
    """Return a number rounded to f16 or bf16.

    Args:
        element_type: ``f16`` or ``bf16``.
        operand: A number; booleans, and integers proven to be within `EXACT_UP_TO`, are exact.
    """
    exact = number(EXACT_UP_TO[element_type])
    if operand.sort == "bool":
        return operand
    if operand.sort == "int" and all(is_natural(subtract(exact, sign)) for sign in (operand, negative(operand))):
        return operand
    if operand.op == "number" and (math.isinf(operand.args[0]) or not operand.args[0]):
        return operand
    if operand.op == "choose":
        return choose(operand.args[0], *(round_to(element_type, branch) for branch in operand.args[1:]))
    if operand.op == "number":
        return number(float(rounded_to(element_type, operand.args[0])))
    return apply(f"round_{element_type}", (operand,))


#: Largest integer up to which the type represents every integer exactly.
EXACT_UP_TO = {"f16": 2**11, "bf16": 2**8}


# Substitution


def substitute(expr: Expr, replaced: Mapping[Expr, Expr]) -> Expr:
    """Return an expression with subexpressions replaced.

    Args:
        expr: The expression; also replaced if it is itself a key of ``replaced``.
        replaced: Replacements by subexpression; they are not searched for further keys.
    """
    known = _Replaced(replaced)
    leaves = {key.leaves for key in replaced}
    parts = [expr]
    seen = {expr, *replaced}
    # Parts without the leaves of any key are unchanged.
    for part in parts:
        for operand in part.operands:
            if operand not in seen and any(operand.leaves & wanted == wanted for wanted in leaves):
                seen.add(operand)
                parts.append(operand)
    for part in sorted(parts, key=lambda part: part.order):
        if part not in known and any(known[operand] is not operand for operand in part.operands):
            known[part] = rebuild(part, known)
    return known[expr]


class _Replaced(dict[Expr, Expr]):
    """A map of expressions to their replacements, by default to themselves."""

    def __missing__(self, key: Expr) -> Expr:
        return key


def rebuild(expr: Expr, known: Mapping[Expr, Expr]) -> Expr:
    """Return an expression with each operand replaced.

    Args:
        expr: The expression, whose operator and parameters are kept.
        known: Replacements by operand, for all operands, also for those that do not change.
    """
    if expr.op == "sum":
        terms = []
        for monomial, factor in expr.args:
            term = number(factor)
            for atom in monomial:
                term = multiply(term, known[atom])
            terms.append(term)
        return add(*terms)
    args = tuple(known[arg] if isinstance(arg, Expr) else arg for arg in expr.args)
    if expr.op == "apply":
        return apply(str(args[0]), args[1:], expr.sort)
    maker = _MAKERS.get(expr.op)
    return maker(*args) if maker is not None else make(expr.op, args, expr.sort)


_MAKERS: dict[str, Callable[..., Expr]] = {
    "real_sum": add,
    "product": multiply,
    "quotient": divide,
    "floor_quotient": floor_divide,
    "modulo": modulo,
    "at_most": _at_most,
    "compared": _compared,
    "not_positive": _not_positive,
    "equal": equal,
    "zero": lambda expr: equal(expr, ZERO),
    "not": negate,
    "and": conjunction,
    "or": disjunction,
    "choose": choose,
    "running_sum": running_sum,
    "index": index,
}
