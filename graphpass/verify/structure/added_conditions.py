"""Detection of comparisons in the candidate with the batch size, row indices or token ids.

Passes add conditions on positions, lengths and padding (masks, windows, tables), but none on the batch size, the row or
the token id. Runs on prompts may miss an added condition of this kind, because no prompt meets it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from graphpass.analysis.symbolic import expressions as ex
from graphpass.analysis.symbolic.elements import UnknownError
from graphpass.analysis.symbolic.expressions import Expr
from graphpass.analysis.symbolic.nodes import walk_outside
from graphpass.analysis.symbolic.solver import Example, example_of
from graphpass.analysis.symbolic.step import BATCH
from graphpass.ir.inputs import EMBEDDINGS, token_input
from graphpass.ir.values import REALS
from graphpass.verify.structure.tensors import DefinedTensors
from graphpass.verify.structure_proof import Region

if TYPE_CHECKING:
    from graphpass.ir.graph import Node

#: Comparisons of integers.
_COMPARISONS = {"not_positive", "zero"}


def added_conditions(sides: tuple[DefinedTensors, ...], operators: Iterable[Node]) -> tuple[Region, ...]:
    """Return operators with comparisons of batch size, row or token ids that the reference lacks.

    Args:
        sides: Reference and candidate.
        operators: The candidate's operators that are not proven equal.
    """
    reference, candidate = sides
    compared: dict[Expr, tuple[Expr, Node]] = {}
    for node in sorted(operators, key=lambda node: node.index):
        for condition in _comparisons(candidate, node):
            compared.setdefault(_without_axes(condition), (condition, node))
    if not compared:
        return ()
    known = {_without_axes(condition) for node in reference.graph.nodes for condition in _comparisons(reference, node)}
    regions: dict[str, Region] = {}
    for plain, (condition, node) in compared.items():
        if plain not in known and (subject := _decisive(candidate, condition)) is not None:
            reason = f"compares {subject}, which the reference does not; accept the node with --allow"
            regions.setdefault(node.name, Region(node.name, node.op, reason))
    return tuple(regions.values())


def _comparisons(tensors: DefinedTensors, node: Node) -> list[Expr]:
    """Return an operator's comparisons that read batch size, row indices or token ids."""
    comparisons: dict[Expr, None] = {}
    for value in node.outputs:
        if value.element_type in REALS:
            continue
        try:
            whole = tensors.whole(value)
        except UnknownError:
            continue
        compared = (part for part in _values(whole) if part.op in _COMPARISONS)
        comparisons |= {part: None for part in compared if any(_others(tensors, part).values())}
    return list(comparisons)


def _values(root: Expr) -> Iterator[Expr]:
    """Return the subexpressions of ``root``, except indices of elements that are read."""
    return walk_outside({"read", "index"}, root)


def _others(tensors: DefinedTensors, condition: Expr) -> dict[str, dict[Expr, Expr]]:
    """Return substitutions by another batch size, other rows and other token ids, by subject."""
    tokens = token_input(tensors.graph)
    ids = None if tokens is None else tensors.graph.producer(tokens).name
    symbols: dict[str, dict[Expr, Expr]] = {"the batch size": {}, "the number of a row": {}, "token ids": {}}
    for part in _values(condition):
        if part is BATCH:
            symbols["the batch size"][part] = ex.length("other batch", 1)
        if part.op == "index" and part.args[1:] == (BATCH,):
            symbols["the number of a row"][part] = ex.index(("other", part.args[0]), BATCH)
        if part.op == "read" and part.args[0] == ids != EMBEDDINGS:
            symbols["token ids"][part] = ex.read("other token ids", part.args[1:], part.sort)
    return symbols


def _decisive(tensors: DefinedTensors, condition: Expr) -> str | None:
    """Return the subject that ``condition`` depends on, if the solver finds an example."""
    indices = [part for part in ex.walk(condition) if part.op == "index"]
    for subject, others in _others(tensors, condition).items():
        if not others:
            continue
        # Compare equal indices, within the sizes of both batches.
        changed = ex.substitute(condition, {index: index for index in indices} | others)
        shared = ex.conjunction(*(ex.less(index, ex.substitute(index.args[1], others)) for index in indices))
        if isinstance(example_of(ex.conjunction(shared, ex.negate(ex.equal(condition, changed)))), Example):
            return subject
    return None


def _without_axes(condition: Expr) -> Expr:
    """Return a condition with indices named by size alone, to ignore the order of axes."""
    indices = [part for part in ex.walk(condition) if part.op == "index"]
    return ex.substitute(
        condition, {index: ex.index("any", index.args[1]) for index in indices if len(index.args) == 2}
    )
