"""Smaller variants of a graph, as statements that may be invalid."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from graphpass.ir.text.statements import Literal, Statement, TensorType

if TYPE_CHECKING:
    from graphpass.runtime.sessions.inputs import Array

Statements: TypeAlias = tuple[Statement, ...]

#: Largest constant, in elements, that remains an operand instead of a named Constant of noise.
_INLINE = 8


def live(statements: Iterable[Statement]) -> Statements:
    """Return the ends, such as Result and Assign, and the statements upstream of them."""
    needed: set[str] = set()
    kept: list[Statement] = []
    for statement in reversed(list(statements)):
        if not statement.results or not needed.isdisjoint(statement.results):
            kept.append(statement)
            needed |= {operand for operand in statement.operands if isinstance(operand, str)}
    return tuple(reversed(kept))


def computing_operators(statements: Statements) -> list[int]:
    """Return the indices of operators that compute a value."""
    return [
        index
        for index, statement in enumerate(statements)
        if statement.results and statement.kind not in {"Constant", "Parameter", "ReadValue"}
    ]


def ending_at(statements: Statements, index: int) -> Statements:
    """Return the graph with the values of one statement as outputs.

    Args:
        statements: The graph.
        index: Index of the statement; later ones are removed.
    """
    ends = (Statement((), "Result", (result,), {"name": f"{result}.out"}) for result in statements[index].results)
    return live((*(statement for statement in statements[: index + 1] if statement.results), *ends))


def starting_at(statements: Statements, index: int, values: Mapping[str, Array]) -> Statements:
    """Return the graph with the values computed before one statement as inputs.

    Args:
        statements: The graph.
        index: Index of the statement.
        values: Values of the graph by name, as in `cut`.
    """
    return cut(statements, {at for at in computing_operators(statements) if at < index}, values)


def cut(statements: Statements, indices: Collection[int], values: Mapping[str, Array]) -> Statements:
    """Replace statements by inputs.

    Args:
        statements: The graph.
        indices: Indices of the statements to replace.
        values: Values of the graph by name; a statement is kept if one of its values is missing.

    Returns:
        The statements upstream of outputs.
    """
    candidates: list[Statement] = []
    for index, statement in enumerate(statements):
        if index not in indices or any(result not in values for result in statement.results):
            candidates.append(statement)
            continue
        types = statement.types or (TensorType("dynamic", None),) * len(statement.results)
        for result, type_ in zip(statement.results, types, strict=True):
            shape = type_.shape if type_.shape is not None else (None,) * values[result].ndim
            element_type = type_.element_type
            candidates.append(Statement((result,), "Parameter", types=(TensorType(element_type, shape),)))
    return live(candidates)


def bypasses(statements: Statements, values: Mapping[str, Array]) -> list[tuple[str, str]]:
    """Return pairs of a value and an upstream value that may replace it.

    Replacements are the operands of the value's producer, and the first value upstream of the same type and shape, such
    as the residual stream before all layers. Pairs that remove most operators come first.

    Args:
        statements: The graph.
        values: Values of the graph by name, for types and shapes; declared types apply to missing values.
    """
    makers = {result: statement for statement in statements for result in statement.results}
    order = {result: index for index, result in enumerate(makers)}
    upstream: dict[str, dict[Any, str]] = {}
    pairs: set[tuple[str, str]] = set()
    for result, maker in makers.items():
        forms: dict[Any, str] = {}
        for operand in maker.operands:
            if isinstance(operand, str):
                pairs.add((result, operand))
                for form, other in upstream[operand].items():
                    forms[form] = min(other, forms.get(form, other), key=order.__getitem__)
        own = _form(maker, result, values)
        if own in forms:
            pairs.add((result, forms[own]))
        upstream[result] = forms if own is None else {own: result} | forms
    return sorted(pairs, key=lambda pair: (order[pair[1]] - order[pair[0]], order[pair[0]]))


def _form(maker: Statement, result: str, values: Mapping[str, Array]) -> Any:
    if maker.kind == "Constant":
        return None
    if result in values:
        return values[result].dtype.name, values[result].shape
    return str(maker.types[maker.results.index(result)]) if maker.types else None


def bypass(statements: Statements, result: str, other: str) -> Statements:
    """Return the graph with all reads of one value replaced by another.

    Args:
        statements: The graph.
        result: Name of the value to replace.
        other: Name of the value to read in its place.
    """
    return live(
        replace(statement, operands=tuple(other if operand == result else operand for operand in statement.operands))
        for statement in statements
    )


def without_ends(statements: Statements, ends: Collection[int], values: Mapping[str, Array]) -> Statements:
    """Return the graph without some of its ends; variables without an Assign become inputs.

    Args:
        statements: The graph.
        ends: Indices of the ends to remove.
        values: Values of the graph by name, as in `cut`.
    """
    unassigned = {statements[index].attributes.get("variable") for index in ends} - {None}
    kept = tuple(statement for index, statement in enumerate(statements) if index not in ends)
    reads = {
        index
        for index, statement in enumerate(kept)
        if statement.kind == "ReadValue" and statement.attributes["variable"] in unassigned
    }
    return cut(kept, reads, values)


def with_noise(statements: Statements, names: Collection[str]) -> Statements:
    """Return the graph with constant operands replaced by noise.

    Args:
        statements: The graph.
        names: Names of the operands, from `literals`.
    """
    candidates: list[Statement] = []
    for statement in statements:
        operands = list(statement.operands)
        for port, operand in enumerate(operands):
            name = f"{(*statement.results, statement.kind)[0]}.c{port}"
            if isinstance(operand, Literal) and operand.values.size > _INLINE and name in names:
                type_ = TensorType(operand.element_type, operand.values.shape)
                candidates.append(Statement((name,), "Constant", types=(type_,)))
                operands[port] = name
        candidates.append(replace(statement, operands=tuple(operands)))
    return tuple(candidates)


def literals(statements: Statements) -> list[str]:
    """Return names for the constant operands that `with_noise` can replace."""
    return [
        f"{(*statement.results, statement.kind)[0]}.c{port}"
        for statement in statements
        for port, operand in enumerate(statement.operands)
        if isinstance(operand, Literal) and operand.values.size > _INLINE
    ]


def sizes(statements: Statements) -> list[int]:
    """Return the sizes of inputs and constants, the largest first."""
    types = (
        type_
        for statement in statements
        if statement.kind in {"Constant", "Parameter", "ReadValue"}
        for type_ in statement.types
    )
    fixed = {size for type_ in types for size in type_.shape or () if isinstance(size, int)}
    return sorted(fixed - {0, 1}, reverse=True)


def resized(statements: Statements, old: int, new: int) -> Statements:
    """Replace multiples of one size by multiples of another.

    Args:
        statements: The graph.
        old: The size to replace, in types and in constant integers.
        new: The size in its place.

    Returns:
        The statements, without types of computed values.
    """

    def size(value: Any) -> Any:
        return value // old * new if isinstance(value, int) and value >= old and value % old == 0 else value

    def operand(value: Any) -> Any:
        if not isinstance(value, Literal) or value.values.dtype.kind not in "iu":
            return value
        values = np.where((value.values >= old) & (value.values % old == 0), value.values // old * new, value.values)
        return Literal(values.astype(value.values.dtype), value.element_type)

    def types(statement: Statement) -> tuple[TensorType, ...]:
        if statement.kind not in {"Constant", "Parameter", "ReadValue"}:
            return ()
        return tuple(
            TensorType(each.element_type, None if each.shape is None else tuple(map(size, each.shape)))
            for each in statement.types
        )

    return tuple(
        replace(statement, types=types(statement), operands=tuple(map(operand, statement.operands)))
        for statement in statements
    )


def sliced(inputs: Mapping[str, Array], statements: Statements) -> dict[str, Array]:
    """Return inputs sliced to the shapes that a graph declares.

    Args:
        inputs: Values of the inputs by name; names that the graph lacks are dropped.
        statements: The graph; a dimension that is not fixed keeps its size.
    """
    arrays: dict[str, Array] = {}
    for statement in statements:
        if statement.kind == "Parameter" and statement.results[0] in inputs:
            array = inputs[statement.results[0]]
            shape = statement.types[0].shape or ()
            ends = (slice(0, size) if isinstance(size, int) else slice(None) for size in shape)
            arrays[statement.results[0]] = np.ascontiguousarray(array[tuple(ends)])
    return arrays


def with_named_sizes(statements: Statements, inputs: Mapping[str, Array]) -> tuple[Statements, dict[str, int]]:
    """Name the symbolic dimensions of inputs after their sizes: ``n3``.

    Args:
        statements: The graph.
        inputs: Values of the inputs by name, from which the sizes are read.

    Returns:
        The statements, and the sizes by name.
    """
    names: dict[str, int] = {}
    named: list[Statement] = []
    for statement in statements:
        if statement.kind == "Parameter" and statement.results[0] in inputs:
            shape = inputs[statement.results[0]].shape
            stated = statement.types[0].shape or (None,) * len(shape)
            sizes_ = zip(stated, shape, strict=True)
            new = tuple(stated if isinstance(stated, int) else f"n{size}" for stated, size in sizes_)
            names |= {name: int(name[1:]) for name in new if isinstance(name, str)}
            statement = replace(statement, types=(TensorType(statement.types[0].element_type, new),))
        named.append(statement)
    return tuple(named), names
