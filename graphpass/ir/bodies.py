"""Sees a model whose work is done inside the bodies of If, Loop, Scan and TensorIterator as one flat graph.

The operators of a body stand in the view once, beside those around it. In place of the operator with the bodies stand,
under its name, nodes for its ports, so that the view has no cycles:

``If``
    One for each output; reads the condition and what the branches give.
``Carried``
    What a loop carries, as an iteration finds it; reads what the first one finds.
``Sliced``
    What an iteration takes of a tensor along ``axis``; the axis stays with size 1 where ``keeps_axis``.
``Iteration``
    The number of the iteration.
``Final``
    An output that holds what the last iteration leaves; reads what an iteration leaves and the ``Carried`` that it is
    in the next one, where there is one: with no iteration at all, that is what comes out.
``Stacked``
    An output that holds what all iterations give, one after the other along ``axis``, which is new unless
    ``keeps_axis``.

The attribute ``loop`` of all but If says what kind of loop it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from graphpass.ir.model import Model
from graphpass.ir.types import Port

if TYPE_CHECKING:
    from graphpass.ir.graph import Graph

__all__ = ["inlined"]

_WITH_BODIES = ("If", "Loop", "Scan", "TensorIterator")


def inlined(model: Model) -> Model:
    """``model`` as analyses see it: with the nodes of all bodies beside the others.

    A decoder that an exporter merged with the one that fills the caches has all its nodes in branches; a recurrent
    state is updated in a loop over the tokens.

    Args:
        model: ONNX or OpenVINO. The view is kept until it is edited.

    Returns:
        ``model`` itself where it has no branches; else something to analyse, not to edit or to save.
    """
    return model.analysis(_inlined)


def _inlined(model: Model) -> Model:
    return _Inlined(model) if any(True for _ in model.graph.of_op(*_WITH_BODIES)) else model


class _Inlined(Model):
    """A view of another model in which no node has bodies."""

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

    def _refuse(self) -> NoReturn:
        raise TypeError("a view of a model's bodies is there to be analysed only")
