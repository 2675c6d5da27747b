"""Names of nodes that do not depend on nodes created earlier in the process.

OpenVINO names an unnamed node ``<Type>_<number>``, where the number counts all nodes of the process. The XML contains
these names, so converting twice would produce different files.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    import openvino


_GENERATED_MODEL = re.compile(r"Model\d+")
_WITH_BODIES = frozenset({"If", "Loop", "TensorIterator"})
_GENERATED = re.compile(r"([A-Za-z]\w*?)(_\d+)+")


def bodies(op: openvino.Node) -> tuple[openvino.Model, ...]:
    """Return the graphs of an If, Loop or TensorIterator; empty for other operators."""
    kind = op.get_type_name()
    if kind not in _WITH_BODIES:
        return ()
    return (op.get_then_body(), op.get_else_body()) if kind == "If" else (op.get_function(),)


def all_models(ov_model: openvino.Model) -> Iterator[openvino.Model]:
    """Yield the model, then its bodies."""
    pending = [ov_model]
    for graph in pending:
        yield graph
        for op in graph.get_ordered_ops():
            pending.extend(bodies(op))


def all_ops(ov_model: openvino.Model) -> Iterator[openvino.Node]:
    """Yield all operators, the main graph first, then the bodies, each in topological order."""
    pending = [ov_model]
    for graph in pending:
        for op in graph.get_ordered_ops():
            yield op
            if op.get_type_name() in _WITH_BODIES:
                pending.extend(bodies(op))


def has_generated_name(op: openvino.Node, types: Collection[str]) -> bool:
    """Return whether the operator's name has the form of names that OpenVINO generates.

    Args:
        op: The operator.
        types: Operator types to recognize in names; OpenVINO's passes transfer names to operators of another type.
    """
    name = op.get_friendly_name()
    matched = _GENERATED.fullmatch(name)
    return name == op.get_name() or (matched is not None and matched[1] in types)


def stabilise_names(
    ov_model: openvino.Model, kept: Collection[str] = frozenset(), kept_nodes: Collection[str] = frozenset()
) -> None:
    """Rename nodes with generated names to ``<Type>_<k>``, numbered in topological order.

    Afterwards names depend on the graph alone. A generated name of the model is replaced, too; names of ports, tensors
    and variables are kept. Tensor names in bodies that also occur in another graph are removed, because OpenVINO
    renumbers them at each read (2026.4.1).

    Args:
        ov_model: The model, which is edited.
        kept: Names to keep although they have the generated form, for example names from a file.
        kept_nodes: Process-wide names (`openvino.Node.get_name`) of nodes whose name is in ``kept`` and equals their
            process-wide name.
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
        if own or (name not in kept and has_generated_name(op, types)):
            nameless.append(op)
        else:
            taken.add(name)
    if ov_model.get_friendly_name() not in kept and _GENERATED_MODEL.fullmatch(ov_model.get_friendly_name()):
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
