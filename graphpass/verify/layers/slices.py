"""Split weights into slices that run separately."""

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
    from graphpass.ir.writer import Handle

#: Maximum size of a slice of weights, in bytes of f32.
_MOST = 128e6


def bounds(size: int, elements: int) -> tuple[tuple[int, int], ...]:
    """Return start and end, exclusive, of slices along an axis of weights.

    Args:
        size: Size of the axis.
        elements: Number of elements of the weights.
    """
    count = max(1, -int(-4 * elements // _MOST))
    return tuple(pairwise(size * number // count for number in range(count + 1)))


def multiplied_constant(graph: Graph, product: Node) -> Value | None:
    """Return the Constant of rank 2 that a MatMul multiplies by, before casts.

    Args:
        graph: Graph of the MatMul.
        product: The MatMul, with the activation as its first operand.

    Returns:
        The weights; ``None`` if they are computed or of another rank, or if the activation is transposed.
    """
    weights = graph.look_through(product.source(1), CASTS)
    sizes = [size for size in weights.shape or () if isinstance(size, int)]
    is_plain = weights.rank == 2 and len(sizes) == 2 and not product.attributes.get("transpose_a")
    return weights if is_plain and graph.producer(weights).op == "Constant" else None


def columns_of(product: Node) -> int:
    """Return the axis of a MatMul's weights that becomes the last axis of its result."""
    return 0 if product.attributes.get("transpose_b") else 1


class Cutter:
    """Replaces weights of one model by slices.

    Slices in f16 and f32 are stored as new constants: runtimes fold a Slice of f16 constants in f32 and for the whole
    constant, and ONNX Runtime computes other Slices in each run.

    Attributes:
        rewriter: The rewriter of the model.
        write: The writer for operators around the slices.
    """

    def __init__(self, model: Model, name: str) -> None:
        """Start to edit ``model``; names of new nodes begin with ``graphpass/`` and ``name``."""
        self.rewriter = model.rewriter()
        self.write = self.rewriter.under(f"graphpass/{name}")
        self._model = model
        self._files = NewWeights(model.path, name) if isinstance(model, OnnxModel) else None

    def cut(self, weights: Value, ends: tuple[int, int], axis: int) -> Handle:
        """Create a slice of a Constant.

        Args:
            weights: The Constant's output.
            ends: Start and end, exclusive.
            axis: Axis of the slice, 0 or more.

        Returns:
            A constant with the elements of the slice; for types besides f16 and f32, the output of a Slice.
        """
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
