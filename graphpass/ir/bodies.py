"""Inline the bodies of If, Loop, Scan and TensorIterator into one flat, acyclic graph.

Operators of a body occur once in the view. These nodes stand for the operator with bodies, under its name:

``If``
    One node for each output, with the attribute ``joins``. Inputs: the condition and the results of the branches. Other
    views have one If with all outputs, whose inputs are the condition and the values that its branches read.
``Carried``
    A loop-carried tensor at the start of an iteration. Input: its initial value.
``Sliced``
    The slice of a tensor along ``axis`` that an iteration reads. If ``keeps_axis`` is set, the slice keeps the axis
    with size 1. If ``in_order`` is set, iteration ``i`` reads index ``i``.
``Iteration``
    The index of the iteration. For a Loop its attributes are ``count``, the maximum trip count, and ``conditions``: the
    initial condition, the condition that the body receives (ONNX only), and the condition that the body returns.
``Final``
    An output with the result of the last iteration. Inputs: this result and, if loop-carried, its ``Carried``, which is
    the output of a loop without iterations.
``Stacked``
    An output that concatenates the results of all iterations along ``axis``. The axis is new unless ``keeps_axis`` is
    set; ``in_order`` is defined as for ``Sliced``.

All of these except ``If`` have the attribute ``loop``, the operator of the loop. ``Final`` and ``Stacked`` have the
attribute ``port``, the output of the loop.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NoReturn

from graphpass.ir.graph import Graph, Node
from graphpass.ir.model import Model
from graphpass.ir.types import Port

#: Operators that run a body once for each token or slice.
LOOPS = ("Loop", "Scan", "TensorIterator")

WITH_BODIES = ("If", *LOOPS)


def inlined(model: Model) -> Model:
    """Return ``model`` with all bodies inlined, the view that analyses read.

    Two cases need the view: a merged decoder has all its nodes in branches, and loops over tokens update recurrent
    states. The view is cached until the model is edited, and is read-only. A model without bodies is returned
    unchanged.
    """
    return model.analysis(_inlined)


def _inlined(model: Model) -> Model:
    return _Inlined(model) if any(True for _ in model.graph.of_op(*WITH_BODIES)) else model


class _Inlined(Model):
    def __init__(self, model: Model) -> None:
        super().__init__(model.path)
        self.dialect = model.dialect
        self._model = model

    @property
    def inputs(self) -> tuple[Port, ...]:
        return self._model.inputs

    @property
    def outputs(self) -> tuple[Port, ...]:
        return self._model.outputs

    def digest(self) -> str:
        return self._model.digest()

    def validate(self) -> None:
        self._model.validate()

    def build_graph(self, *, inline: bool = True) -> Graph:  # noqa: ARG002 - the view is always inlined
        return self._model.build_graph(inline=True)

    def rewriter(self) -> NoReturn:
        self._refuse()

    def read_note(self, key: str) -> str | None:
        return self._model.read_note(key)

    def write_note(self, key: str, text: str) -> None:  # noqa: ARG002 - it always raises
        self._refuse()

    def clone(self) -> Any:
        self._refuse()

    def excerpt(self, nodes: Iterable[Node]) -> NoReturn:  # noqa: ARG002 - it always raises
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise TypeError("the inlined view of a model is read-only")
