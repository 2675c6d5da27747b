"""Show the bodies of If, Loop, Scan and TensorIterator in one flat graph.

The operators of a body stand in the view once. Nodes for its ports replace the operator with the bodies, under its name
and without cycles:

``If``
    One for each output; reads the condition and the results of the branches.
``Carried``
    A tensor that a loop carries, as an iteration finds it; reads the start of the first one.
``Sliced``
    The slice of a tensor along ``axis`` that an iteration takes; the axis stays with size 1 if ``keeps_axis``.
    ``in_order`` says whether the first iteration takes the first place, and each the next one.
``Iteration``
    The number of the iteration. That of a Loop has the most iterations, ``count``, and ``conditions``: as given, as
    an iteration finds it (in ONNX alone), as that leaves it.
``Final``
    An output that holds the last iteration's result; reads that and, if carried on, its ``Carried``: the output of a
    loop without iterations.
``Stacked``
    An output that concatenates the results of all iterations along ``axis``, which is new unless ``keeps_axis``;
    ``in_order`` as above.

The attribute ``loop`` of all but If is the kind of loop, and ``port`` of Final and Stacked the output of the loop.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NoReturn

from graphpass.ir.graph import Graph, Node
from graphpass.ir.model import Model
from graphpass.ir.types import Port

_WITH_BODIES = ("If", "Loop", "Scan", "TensorIterator")


def inlined(model: Model) -> Model:
    """Return ``model`` with the nodes of all bodies beside the others, as analyses see it.

    A decoder merged with the one that fills the caches has all its nodes in branches; loops over tokens update
    recurrent states. The view is kept until the model is edited; it is not to be edited or saved. A model without
    bodies is its own view.
    """
    return model.analysis(_inlined)


def _inlined(model: Model) -> Model:
    return _Inlined(model) if any(True for _ in model.graph.of_op(*_WITH_BODIES)) else model


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

    def build_graph(self, *, inline: bool = True) -> Graph:  # noqa: ARG002 - bodies stand beside the rest, always
        return self._model.build_graph(inline=True)

    def rewriter(self) -> NoReturn:
        self._refuse()

    def read_note(self, key: str) -> str | None:
        return self._model.read_note(key)

    def write_note(self, key: str, text: str) -> None:  # noqa: ARG002 - it is there to refuse
        self._refuse()

    def clone(self) -> Any:
        self._refuse()

    def excerpt(self, nodes: Iterable[Node]) -> NoReturn:  # noqa: ARG002 - it is there to refuse
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise TypeError("a view of a model's bodies is there to be analysed only")
