"""Name nodes independently of the nodes that a process made before.

OpenVINO names an unnamed node ``<Type>_<number>``, and the number counts the nodes of the whole process. Such
names reach the XML, so the same conversion twice would give different files.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    import openvino


_MADE_UP_MODEL = re.compile(r"Model\d+")
_WITH_BODIES = frozenset({"If", "Loop", "TensorIterator"})
_MADE_UP = re.compile(r"([A-Za-z]\w*?)(_\d+)+")


def bodies(op: openvino.Node) -> tuple[openvino.Model, ...]:
    """Return the graphs inside an If, Loop or TensorIterator; none of any other operator."""
    kind = op.get_type_name()
    if kind not in _WITH_BODIES:
        return ()
    return (op.get_then_body(), op.get_else_body()) if kind == "If" else (op.get_function(),)


def all_models(ov_model: openvino.Model) -> Iterator[openvino.Model]:
    """Yield the model, then the bodies in it."""
    pending = [ov_model]
    for graph in pending:
        yield graph
        for op in graph.get_ordered_ops():
            pending.extend(bodies(op))


def all_ops(ov_model: openvino.Model) -> Iterator[openvino.Node]:
    """Yield all operators, each graph in topological order, the main graph first, then the bodies."""
    pending = [ov_model]
    for graph in pending:
        for op in graph.get_ordered_ops():
            yield op
            if op.get_type_name() in _WITH_BODIES:
                pending.extend(bodies(op))


def looks_made_up(op: openvino.Node, types: Collection[str]) -> bool:
    """Return whether the operator's name has OpenVINO's made-up form.

    ``types`` are names of operator types that count; OpenVINO's passes hand names on to operators of another type.
    """
    name = op.get_friendly_name()
    matched = _MADE_UP.fullmatch(name)
    return name == op.get_name() or (matched is not None and matched[1] in types)


def stabilise_names(
    ov_model: openvino.Model, kept: Collection[str] = frozenset(), kept_nodes: Collection[str] = frozenset()
) -> None:
    """Rename OpenVINO's made-up node names ``<Type>_<k>``, counted in topological order.

    Names of the model likewise. Those of ports, tensors and variables stay unchanged, but names of tensors in bodies
    that another graph has, too, go: OpenVINO renumbers them whenever it reads the model (2026.4.1). The result
    depends on the graph alone.

    Args:
        ov_model: The model; it is edited.
        kept: Names that stay although they look made up, for example those that came from a file.
        kept_nodes: Process-wide names (`openvino.Node.get_name`) of nodes that bear a name of ``kept`` which happens
            to be their own.
    """
    ops = list(all_ops(ov_model))
    types = {op.get_type_name() for op in ops}
    if types & _WITH_BODIES:
        _drop_repeated_names(ov_model)
    nameless = []
    taken = set(kept)
    for op in ops:
        name = op.get_friendly_name()
        own = name[-1:].isdecimal() and name == op.get_name() and op.get_name() not in kept_nodes
        if own or (name not in kept and looks_made_up(op, types)):
            nameless.append(op)
        else:
            taken.add(name)
    if ov_model.get_friendly_name() not in kept and _MADE_UP_MODEL.fullmatch(ov_model.get_friendly_name()):
        ov_model.set_friendly_name("Model0")
    counters = dict.fromkeys(types, 0)
    for op in nameless:
        kind = op.get_type_name()
        while (name := f"{kind}_{counters[kind]}") in taken:
            counters[kind] += 1
        taken.add(name)
        op.set_friendly_name(name)


def _drop_repeated_names(ov_model: openvino.Model) -> None:
    taken: set[str] = set()
    for graph in all_models(ov_model):
        outputs = [output for op in graph.get_ordered_ops() for output in op.outputs()]
        for output in outputs:
            if not (names := output.get_names()).isdisjoint(taken):
                output.set_names(names - taken)
        taken.update(*(output.get_names() for output in outputs))
