"""Make smaller graphs of one, each perhaps no graph at all."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from graphpass.dialects.text import noise
from graphpass.ir.text.statements import Literal, Statement, TensorType

if TYPE_CHECKING:
    from graphpass.runtime.sessions.inputs import Array

Statements: TypeAlias = tuple[Statement, ...]

#: Constants of more elements are noise, with a name of their own.
_INLINE = 8


def live(statements: Iterable[Statement]) -> Statements:
    """Return the statements that ends read, and the ends."""
    needed: set[str] = set()
    kept: list[Statement] = []
    for statement in reversed(list(statements)):
        if not statement.results or not needed.isdisjoint(statement.results):
            kept.append(statement)
            needed |= {operand for operand in statement.operands if isinstance(operand, str)}
    return tuple(reversed(kept))


def computing_operators(statements: Statements) -> list[int]:
    """Return the places of operators that compute something."""
    return [
        place
        for place, statement in enumerate(statements)
        if statement.results and statement.kind not in {"Constant", "Parameter", "ReadValue"}
    ]


def ending_at(statements: Statements, place: int) -> Statements:
    """Return a graph whose outputs are the values of one statement."""
    ends = (Statement((), "Result", (result,), {"name": f"{result}.out"}) for result in statements[place].results)
    return live((*(statement for statement in statements[: place + 1] if statement.results), *ends))


def starting_at(statements: Statements, place: int, values: Mapping[str, Array]) -> Statements:
    """Return a graph whose inputs are the computed values before a statement."""
    return cut(statements, {at for at in computing_operators(statements) if at < place}, values)


def cut(statements: Statements, places: Collection[int], values: Mapping[str, Array]) -> Statements:
    """Replace the values of some statements by inputs, if their elements are known."""
    candidates: list[Statement] = []
    for place, statement in enumerate(statements):
        if place not in places or any(result not in values for result in statement.results):
            candidates.append(statement)
            continue
        types = statement.types or (TensorType("dynamic", None),) * len(statement.results)
        for result, type_ in zip(statement.results, types, strict=True):
            shape = type_.shape if type_.shape is not None else (None,) * values[result].ndim
            element_type = type_.element_type
            candidates.append(Statement((result,), "Parameter", types=(TensorType(element_type, shape),)))
    return live(candidates)


def bypasses(statements: Statements, values: Mapping[str, Array]) -> list[tuple[str, str]]:
    """Return values with others to read in their place, the best first.

    The others are operands, and the farthest values upstream of the same type and shape, such as the stream before all
    layers. The best leave out most.
    """
    makers = {result: statement for statement in statements for result in statement.results}
    order = {result: place for place, result in enumerate(makers)}
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
    """Return a graph that reads ``other`` in the place of ``result``."""
    return live(
        replace(statement, operands=tuple(other if operand == result else operand for operand in statement.operands))
        for statement in statements
    )


def without_ends(statements: Statements, ends: Collection[int], values: Mapping[str, Array]) -> Statements:
    """Return a graph without some ends; variables that nothing assigns become inputs."""
    gone = {statements[place].attributes.get("variable") for place in ends} - {None}
    kept = tuple(statement for place, statement in enumerate(statements) if place not in ends)
    reads = {
        at
        for at, statement in enumerate(kept)
        if statement.kind == "ReadValue" and statement.attributes["variable"] in gone
    }
    return cut(kept, reads, values)


def with_noise(statements: Statements, wanted: Collection[str]) -> Statements:
    """Return a graph in which noise replaces constants of many elements."""
    candidates: list[Statement] = []
    for statement in statements:
        operands = list(statement.operands)
        for port, operand in enumerate(operands):
            name = f"{(*statement.results, statement.kind)[0]}.c{port}"
            if isinstance(operand, Literal) and operand.values.size > _INLINE and name in wanted:
                type_ = TensorType(operand.element_type, operand.values.shape)
                candidates.append(Statement((name,), "Constant", types=(type_,)))
                operands[port] = name
        candidates.append(replace(statement, operands=tuple(operands)))
    return tuple(candidates)


def literals(statements: Statements) -> list[str]:
    """Return the names that `with_noise` gives to constants of many elements."""
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
    """Replace multiples of a size by multiples of another one, and leave types out."""

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
    """Return known inputs in the sizes that a graph has."""
    arrays: dict[str, Array] = {}
    for statement in statements:
        if statement.kind == "Parameter" and statement.results[0] in inputs:
            array = inputs[statement.results[0]]
            shape = statement.types[0].shape or ()
            ends = (slice(0, size) if isinstance(size, int) else slice(None) for size in shape)
            arrays[statement.results[0]] = np.ascontiguousarray(array[tuple(ends)])
    return arrays


def with_named_sizes(statements: Statements, inputs: Mapping[str, Array]) -> tuple[Statements, dict[str, int]]:
    """Name symbolic dimensions of inputs after known sizes."""
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


def noisy(statements: Statements, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Return noise in the shapes of known inputs."""
    types = {statement.results[0]: statement.types[0] for statement in statements if statement.kind == "Parameter"}
    return {name: noise(types[name].element_type, array.shape, name) for name, array in inputs.items() if name in types}
