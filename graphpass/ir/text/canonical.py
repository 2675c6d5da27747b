"""The canonical form of a text, independent of names and order."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from graphpass.errors import UsageError
from graphpass.ir.text.statements import Statement

#: Attributes that identify ports.
_NAMES = ("name", "variable")


def canonical(statements: Iterable[Statement], *, types: bool = False) -> tuple[Statement, ...]:
    """Sort statements topologically, and remove dead ones.

    Values are numbered; Parameters keep their names. Comments and digests are removed.

    Args:
        statements: A graph.
        types: Whether to keep types.

    Returns:
        Inputs first, then each statement after those of its operands. Equal graphs give equal statements.

    Raises:
        UsageError: GP270, a value has no statement.
    """
    listed = list(statements)
    producers = {result: statement for statement in listed for result in statement.results}
    ends = sorted(
        (statement for statement in listed if not statement.results),
        key=lambda statement: (statement.kind, *_port_name(statement)),
    )
    inputs = sorted(
        (statement for statement in listed if statement.kind == "Parameter"), key=lambda statement: statement.results
    )
    ordered: dict[int, Statement] = {}
    for end in (*inputs, *ends):
        pending = [(end, False)]
        while pending:
            statement, is_ready = pending.pop()
            if id(statement) in ordered:
                continue
            if is_ready:
                ordered[id(statement)] = statement
                continue
            pending.append((statement, True))
            for operand in reversed(statement.operands):
                if isinstance(operand, str):
                    if operand not in producers:
                        hint = "add a statement with this result"
                        raise UsageError("GP270", f"{statement}: %{operand} has no statement", hint)
                    pending.append((producers[operand], False))
    names: dict[str, str] = {}
    for statement in ordered.values():
        for result in statement.results:
            names[result] = result if statement.kind == "Parameter" else str(len(names) - len(inputs))
    plain = (
        replace(statement, digest="", remarks=(), types=statement.types if types else ())
        for statement in ordered.values()
    )
    return tuple(statement.renamed(names) for statement in plain)


def _port_name(statement: Statement) -> tuple[str, ...]:
    return tuple(str(statement.attributes[name]) for name in _NAMES if name in statement.attributes)
