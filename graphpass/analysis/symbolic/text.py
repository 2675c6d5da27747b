"""Print expressions in infix notation."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from graphpass.analysis.symbolic.nodes import Expr, walk


def expression_text(expr: Expr) -> str:
    """Return an expression in Python's notation."""
    written: dict[Expr, str] = {}
    for part in walk(expr):
        operands = [written[arg] if isinstance(arg, Expr) else arg for arg in part.args] if part.op != "sum" else []
        written[part] = (
            _sum(part, written) if part.op == "sum" else _WRITERS.get(part.op, _call(part.op))(part, operands)
        )
    return written[expr]


def _call(name: str) -> Callable[[Expr, list[Any]], str]:
    return lambda _, operands: f"{name}({', '.join(map(str, operands))})"


def _sum(part: Expr, written: dict[Expr, str]) -> str:
    words = ""
    for monomial, factor in sorted(part.args, key=lambda term: (term[1] < 0, not term[0])):
        words += (" - " if factor < 0 else " + ") + _times(abs(factor), [written[atom] for atom in monomial])
    return words.removeprefix(" + ").strip() if words.startswith(" + ") else "-" + words[3:]


def _times(size: int, atoms: Iterable[str]) -> str:
    product = " * ".join(atoms)
    return product if size == 1 and product else f"{size} * {product}" if product else str(size)


def _compared(part: Expr, _: list[Any]) -> str:
    """Return ``polynomial <= 0`` or ``== 0`` with positive terms on both sides."""
    sides: dict[bool, list[str]] = {True: [], False: []}
    terms = part.args[0].args if part.args[0].op == "sum" else (((part.args[0],), 1),)
    for monomial, factor in terms:
        sides[factor > 0].append(_times(abs(factor), map(expression_text, monomial)))
    left, right = (" + ".join(sides[side]) or "0" for side in (True, False))
    if part.op == "zero":
        return f"{left} == {right}"
    return f"{left} <= {right}"


def _joined(word: str, operands: list[str]) -> str:
    return "(" + word.join(sorted(operands, key=lambda operand: (len(operand), operand))) + ")"


def _read(_: Expr, operands: list[Any]) -> str:
    source = operands[0]
    name = " ".join(map(str, source)) if isinstance(source, tuple) else source
    return f"{name if isinstance(name, str) else f'table_{name.digest[:6]}'}[{', '.join(operands[1:])}]"


_WRITERS: dict[str, Callable[[Expr, list[Any]], str]] = {
    "number": lambda part, _: f"{part.args[0]:g}" if part.sort == "real" else str(part.args[0]).lower(),
    "length": lambda part, _: str(part.args[0]),
    "index": lambda part, _: str(part.args[0]),
    "read": _read,
    "apply": lambda _, operands: f"{operands[0]}({', '.join(operands[1:])})",
    "not_positive": _compared,
    "zero": _compared,
    "compared": lambda _, operands: f"{operands[0]}({operands[1]}, {operands[2]})",
    "not": lambda _, operands: f"not {operands[0]}",
    "and": lambda _, operands: _joined(" and ", operands),
    "or": lambda _, operands: _joined(" or ", operands),
    "choose": lambda _, operands: f"({operands[1]} if {operands[0]} else {operands[2]})",
    "real_sum": lambda _, operands: "(" + " + ".join(operands) + ")",
    "product": lambda part, operands: " * ".join(
        f"({operand})" if arg.op == "sum" else operand for arg, operand in zip(part.args, operands, strict=True)
    ),
    "quotient": lambda _, operands: f"({operands[0]} / {operands[1]})",
    "running_sum": lambda _, operands: f"sum({operands[0]} for {operands[1]} to {operands[2]})",
    "opaque": lambda _, operands: f"opaque[{', '.join(operands[1:])}]",
}
