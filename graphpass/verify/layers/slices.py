"""Cut weights into slices, of which one runs after the other."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from graphpass.dialects.onnx.model import OnnxModel
from graphpass.dialects.onnx.new_weights import NewWeights
from graphpass.dialects.onnx.rewriter import OnnxRewriter
from graphpass.dialects.onnx.tensors import SMALL, element_code
from graphpass.ir.operators import CASTS
from graphpass.ir.values import known_elements

if TYPE_CHECKING:
    from graphpass.ir.graph import Graph, Node, Value
    from graphpass.ir.model import Model
    from graphpass.ir.rewriter import Handle

#: Bytes in f32 of the weights of a product that run at a time.
_MOST = 128e6


def bounds(size: int, elements: int) -> tuple[tuple[int, int], ...]:
    """Return first and last place, exclusive, of slices of weights with so many ``elements``."""
    count = max(1, -int(-4 * elements // _MOST))
    return tuple(pairwise(size * number // count for number in range(count + 1)))


def multiplied_constant(graph: Graph, product: Node) -> Value | None:
    """Return the Constant ``[k, n]`` that a MatMul multiplies with, before casts, if it does."""
    weights = graph.look_through(product.source(1), CASTS)
    sizes = [size for size in weights.shape or () if isinstance(size, int)]
    is_plain = weights.rank == 2 and len(sizes) == 2 and not product.attributes.get("transpose_a")
    return weights if is_plain and graph.producer(weights).op == "Constant" else None


def columns_of(product: Node) -> int:
    """Return the axis of a MatMul's weights along which its results lie."""
    return 0 if product.attributes.get("transpose_b") else 1


class Cutter:
    """Cuts weights of one model.

    Runtimes that fold a Slice of f16 do so in f32, all of it, and ONNX Runtime makes others at each run; so what is
    left of weights is rewritten.

    Attributes:
        rewriter: Edits the model.
        write: Makes operators around the slices.
    """

    def __init__(self, model: Model, name: str) -> None:
        """Edit ``model``; names of new nodes begin with ``name``."""
        self.rewriter = model.rewriter()
        self.write = self.rewriter.under(f"graphpass/{name}")
        self._model = model
        self._files = NewWeights(model.path, name) if isinstance(model, OnnxModel) else None

    def cut(self, weights: Value, ends: tuple[int, int], axis: int) -> Handle:
        """Make the places of a Constant from the first to before the last of ``ends``."""
        graph = self._model.graph
        constant = graph.constant(weights, known_elements(weights)) if weights.element_type in {"f16", "f32"} else None
        if constant is None:
            return self.write.slice(weights, *ends, axis)
        part = constant[(slice(None),) * axis + (slice(*ends),)]
        if self._files is None:
            return self.write.constant(part, "weights")
        assert isinstance(self.rewriter, OnnxRewriter)
        code = element_code(weights.element_type)
        made = self._files.written(code, part.shape, [part.tobytes()], external=part.nbytes > SMALL)
        return self._files.declare(self.rewriter, made, f"{weights.name}/slice")

    def finish(self) -> None:
        """Write the model's edits back."""
        if self._files is not None:
            self._files.finish()
            assert isinstance(self._model, OnnxModel)
            self._model.scratch += () if self._files.file is None else (self._files.file,)
        self.rewriter.finish()
