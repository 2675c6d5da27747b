"""Components of effective masks: causal, windows, chunks, padding and lengths of rows."""

from __future__ import annotations

from collections.abc import Iterable

from graphpass.analysis.attention.alibi import alibi_slopes
from graphpass.analysis.attention.mask import AttentionMask, Scope
from graphpass.analysis.attention.operators import operator_window
from graphpass.analysis.attention.types import OPERATORS
from graphpass.analysis.symbolic import expressions as ex
from graphpass.analysis.symbolic.elements import Elements
from graphpass.analysis.symbolic.expressions import ONE, TRUE, ZERO, Expr, number
from graphpass.analysis.symbolic.step import is_input, unpadded
from graphpass.ir.graph import Node


def described(elements: Elements, node: Node, scope: Scope, visible: Expr, bias: Expr) -> AttentionMask:
    """Return a mask with its components.

    Args:
        elements: Elements of the graph, with the reasons of unknown ones.
        node: The operator of the attention.
        scope: The indices in ``visible`` and ``bias``.
        visible: Condition of visible keys.
        bias: The number added to their scores.
    """
    opaque = [part for part in ex.walk(visible, bias) if part in elements.misses]
    rest: list[Expr] = []
    is_causal, has_lengths, own = _of_operator(node)
    windows, is_padded = list(own), False
    chunk: int | None = None
    counted: dict[Expr, Expr] = {}
    by_row = (
        set()
        if not has_lengths
        else {
            part
            for part in _parts(visible)
            if any(is_input(expr) or expr.op == "running_sum" for expr in ex.walk(part))
        }
    )
    for part in _parts(visible):
        bound = _last_key(part, scope)
        if bound is scope.position:
            is_causal = True
        elif bound is not None and (of_row := _is_of_row(bound, scope)) is not None:
            has_lengths |= of_row
            is_causal |= ex.contains([bound], scope.query)
        elif (window := _window(part, scope)) is not None:
            windows.append(window)
        elif _is_padding(part, scope):
            is_padded = True
        elif part in by_row:
            # A condition on the length of the row, such as the operator's window.
            continue
        elif (size := _chunk(part, scope)) is not None:
            chunk = size
        elif (key_counts := _counted_causal(part, scope)) is not None:
            counted[part] = key_counts
        else:
            rest.append(part)
    # Comparisons of running sums are causal if all visible keys are counted: each later key increases the sum.
    is_causal |= not set(_parts(visible)).isdisjoint(counted.values())
    return AttentionMask(
        node,
        scope,
        visible,
        bias,
        is_causal=is_causal,
        window=min(windows, default=None),
        chunk=chunk,
        is_padded=is_padded,
        has_lengths=has_lengths,
        slopes=alibi_slopes(unpadded(bias), scope, is_causal=is_causal),
        residue=(*rest, *([] if is_causal else counted)),
        misses=tuple(dict.fromkeys(elements.misses[part] for part in opaque)),
    )


def _of_operator(node: Node) -> tuple[bool, bool, tuple[int, ...]]:
    """Return whether an operator is causal, whether it has row lengths, and its window."""
    ports = OPERATORS.get(node.op)
    if ports is None:
        return False, False, ()
    has_lengths = node.present(ports.lengths) or any(value.rank == 1 for value in node.present(ports.masks))
    window = operator_window(node)
    return ports.hides_later(node), bool(has_lengths), () if window is None else (window,)


def _parts(visible: Expr) -> Iterable[Expr]:
    return visible.args if visible.op == "and" else () if visible is TRUE else (visible,)


def _last_key(part: Expr, scope: Scope) -> Expr | None:
    """Return the bound of ``key <= bound``; ``None`` for other conditions."""
    if part.op != "not_positive":
        return None
    bound = ex.subtract(scope.key, part.args[0])
    return None if ex.contains([bound], scope.key) else bound


def _is_of_row(bound: Expr, scope: Scope) -> bool | None:
    """Return whether the index of the last key is computed from a row length.

    ``False`` if it is computed from an input of positions, ``None`` if from neither.
    """
    atoms = [atom for atom in ex.walk(bound) if atom.op in {"read", "running_sum"}]
    if not atoms or ex.contains([bound], scope.head):
        return None
    return not any(atom.op == "read" and scope.query in atom.args for atom in atoms)


def _window(part: Expr, scope: Scope) -> int | None:
    """Return the window of ``position - key < window``, in slots, or in positions without padding."""
    for form in dict.fromkeys((part, unpadded(part))):
        if form.op == "not_positive":
            excess = ex.subtract(form.args[0], ex.subtract(scope.position, scope.key)).as_number
            if isinstance(excess, int) and excess < 0:
                return 1 - excess
    return None


def _counted_causal(part: Expr, scope: Scope) -> Expr | None:
    """Return the condition under which a key is counted in ``count(key) <= count(position)``.

    ``count`` is a running sum of 0 and 1. The comparison is true for all keys up to the position, and false for later
    keys that are counted. ``None`` for other conditions.
    """
    sums = ex.polynomial(part.args[0]) if part.op == "not_positive" else {}
    atoms = {factor: monomial[0] for monomial, factor in sums.items() if len(monomial) == 1}
    if len(sums) != 2 or atoms.keys() != {1, -1} or any(atom.op != "running_sum" for atom in atoms.values()):
        return None
    # A running sum of other numbers may decrease.
    body, bound, _ = atoms[1].args
    if body.op != "choose" or set(body.args[1:]) != {ZERO, ONE}:
        return None
    if ex.substitute(atoms[1], {scope.key: scope.position}) is not atoms[-1]:
        return None
    counts = body.args[0] if body.args[1] is ONE else ex.negate(body.args[0])
    return ex.substitute(counts, {bound: scope.key})


def _is_padding(part: Expr, scope: Scope) -> bool:
    return is_input(part) and part.args[1:] in {(scope.row, scope.key), (ZERO, scope.key)}


def _chunk(part: Expr, scope: Scope) -> int | None:
    """Return the chunk of ``key / chunk == position / chunk``, in slots or positions."""
    for form in dict.fromkeys((part, unpadded(part))):
        quotients = (expr for expr in ex.walk(form) if expr.op == "floor_quotient" and expr.args[0] is scope.key)
        for size in (part_of_key.args[1].as_number for part_of_key in quotients):
            sides = (ex.floor_divide(expr, number(size)) for expr in (scope.key, scope.position))
            if isinstance(size, int) and form is ex.equal(*sides):
                return size
    return None
