"""Try the rules by which a carried tensor is classified, in order, and report the first fact that each missed.

Each rule calls the same functions as `classify` of `graphpass.analysis.caches`, and reports their answer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from graphpass.analysis.attention.reads import Read
from graphpass.analysis.caches.adapters import adapter, counter
from graphpass.analysis.caches.growth import growth_of
from graphpass.analysis.caches.moves import look_through_moves
from graphpass.analysis.caches.operator_states import entered_state, inside_operator
from graphpass.analysis.caches.pairs import Pair, appended
from graphpass.analysis.caches.updates import Update, find_updates
from graphpass.ir.cache import Cache
from graphpass.ir.graph import Graph, Node
from graphpass.ir.model import Model
from graphpass.ir.operators import CASTS

__all__ = ["Attempt", "attempts_at"]


@dataclass(frozen=True, slots=True)
class Attempt:
    """One rule that was tried.

    Attributes:
        rule: Its claim.
        holds: Whether it does.
        fact: The fact that decides: for a rule that does not hold, the first one that it missed.
    """

    rule: str
    holds: bool
    fact: str


@dataclass(frozen=True, slots=True)
class Case:
    """Input of rules.

    Attributes:
        model: The model, as `graphpass.ir.bodies.inlined` shows it.
        cache: Its entry in the inventory.
        pair: The carried tensor.
        reads: The attention that reads the past.
        updates: The operators that make the present from the past.
    """

    model: Model
    cache: Cache
    pair: Pair
    reads: tuple[Read, ...]
    updates: tuple[Update, ...]

    @property
    def graph(self) -> Graph:
        """Graph of the model."""
        return self.model.graph


Rule = Callable[[Case], Attempt]


def attempts_at(model: Model, cache: Cache, pair: Pair, reads: tuple[Read, ...]) -> tuple[Attempt, ...]:
    """Try the rules on ``pair``, up to the first that holds."""
    case = Case(model, cache, pair, reads, find_updates(model.graph, pair))
    tried = []
    for rule in _RULES:
        attempt = rule(case)
        tried.append(attempt)
        if attempt.holds:
            break
    return tuple(tried)


def _maker(case: Case) -> Node:
    """Return the operator that makes the present, before conversions."""
    assert case.pair.present is not None
    return case.graph.producer(case.graph.look_through(case.pair.present, CASTS))


def _made_by(case: Case) -> str:
    return f"the present is made by {_maker(case).called}"


def _adapter(case: Case) -> Attempt:
    rule = "no cache: weights that the application sets (LoRA)"
    facts = adapter(case.graph, case.pair)
    if facts is not None:
        return Attempt(rule, True, facts[-1])
    if case.pair.read.op != "ReadValue":
        return Attempt(rule, False, "it is an input of the model, not a variable")
    if case.pair.read.inputs:
        return Attempt(rule, False, "the variable has an initial value")
    return Attempt(rule, False, f"a step changes it: {_made_by(case)}")


def _counter(case: Case) -> Attempt:
    rule = "no cache: a counter"
    facts = counter(case.graph, case.pair)
    if facts is not None:
        return Attempt(rule, True, facts[0])
    past = case.pair.past
    if past.rank is None or past.rank > 1:
        return Attempt(rule, False, f"it is no single number: its rank is {past.rank or 'unknown'}")
    return Attempt(rule, False, f"no integer that is added to: {past.element_type}")


def _constant(case: Case) -> Attempt:
    rule = "cross: computed once, then only read"
    present = case.pair.present
    if present is not None and look_through_moves(case.graph, present) != case.pair.past:
        return Attempt(rule, False, _made_by(case))
    written = "nothing is written back" if present is None else "the past is written back as it is"
    if case.cache.kind == "cross":
        return Attempt(rule, True, written)
    return Attempt(rule, False, f"{written}, but no attention that could be recognised reads it")


def _inside(case: Case) -> Attempt:
    rule = "held inside an operator"
    if case.pair.present is None:
        return Attempt(rule, False, "nothing is written back")
    found = inside_operator(case.graph, case.cache, case.pair)
    if found is not None:
        return Attempt(rule, True, found[0].evidence[0])
    return Attempt(rule, False, f"{_made_by(case)}, which does not hold this past inside")


def _kept(case: Case) -> Attempt:
    rule = "kv: attention reads the positions that are appended or written"
    positions = [read for read in case.reads if "sequence" in read.labels]
    if not case.updates:
        return Attempt(rule, False, "no Concat and no scatter operator makes the present from the past")
    update = case.updates[0]
    word = "appends" if update.appends else "writes"
    along = f"{update.node.called} {word} along axis {' or '.join(map(str, update.axes))}"
    if not positions:
        return Attempt(rule, False, f"{along}, but no attention that could be recognised reads it by position")
    axis = positions[0].labels.index("sequence")
    reader = positions[0].attention.node
    if not any(read.labels.index("sequence") in one.axes for one in case.updates for read in positions):
        return Attempt(rule, False, f"{along}, but {reader.called} reads positions along axis {axis}")
    return Attempt(rule, True, f"{along}, along which {reader.called} reads positions")


def _appended(case: Case) -> Attempt:
    rule = "appended, but who reads its positions is not known"
    concat = appended(case.graph, case.pair)
    if concat is not None and case.cache.kind == "linear":
        return Attempt(rule, False, f"Concat {concat.name} is written back whole, but it is no longer than before")
    if concat is not None:
        return Attempt(rule, True, f"Concat {concat.name} appends along axis {concat.attributes['axis']}")
    if case.pair.present is None:
        return Attempt(rule, False, "nothing is written back")
    node = _maker(case)
    if node.op != "Concat":
        return Attempt(rule, False, f"the present is made by {node.called}, not by a Concat")
    return Attempt(rule, False, f"Concat {node.name}, which makes the present, does not join the past and one new part")


def _state(case: Case) -> Attempt:
    rule = "the state of recurrent operators, laid out"
    found = entered_state(case.graph, case.cache, case.pair)
    if found is None:
        return Attempt(rule, False, "no operator with a recurrent state reads it")
    return Attempt(rule, True, found.evidence[0])


def _replaced(case: Case) -> Attempt:
    rule = "linear: replaced each step, of a size that depends on the batch alone"
    if case.pair.present is None:
        return Attempt(rule, False, "nothing is written back")
    growth = growth_of(case.model, case.pair.past, case.pair.present)
    if not growth:
        return Attempt(rule, False, "its rank is unknown")
    free = [axis for axis, one in enumerate(growth) if axis and one not in {"fixed", "kept"}]
    if free and case.cache.kind != "linear":
        return Attempt(rule, False, f"nothing fixes the size of axis {free[0]}, so it may depend on the sequence")
    if case.cache.kind != "linear":
        return Attempt(rule, False, "the evidence is not conclusive")
    return Attempt(rule, True, f"{_made_by(case)}; all sizes but the batch stay")


_RULES: tuple[Rule, ...] = (_adapter, _counter, _constant, _inside, _kept, _appended, _state, _replaced)
