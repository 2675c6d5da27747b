"""The pass `fill-cross-caches`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from graphpass.analysis.caches.encoders import filled_caches
from graphpass.analysis.symbolic.constant_shape import constant_shape
from graphpass.analysis.symbolic.sizes import Sizes
from graphpass.dialects.onnx.model import OnnxModel
from graphpass.dialects.onnx.new_weights import NewWeights
from graphpass.dialects.onnx.rewriter import OnnxRewriter
from graphpass.dialects.onnx.tensors import is_external
from graphpass.dialects.onnx.walk import opset_of
from graphpass.engine.passes import Done, Pass
from graphpass.errors import PreconditionError
from graphpass.io import load
from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.inputs import is_merged
from graphpass.ir.model import Model
from graphpass.ir.types import Dimension
from graphpass.ir.values import REALS
from graphpass.passes.attention.first_decoders import first_decoder, is_states


@dataclass(frozen=True)
class FillCrossCaches(Pass[OnnxModel]):
    """Compute keys and values of cross attention at the end of an encoder.

    Exporters compute these caches from encoder states in a decoder for the first step. The pass finds the decoder's
    outputs that depend on encoder states only, and moves their nodes to the encoder, which returns the caches under
    the same names. Shapes that use the batch size of the tokens use that of the encoder states.

    Encoder and decoder share the weight file of a merged decoder. Weights of a separate decoder for the first step are
    written to a new data file, because data files are copied whole.

    Shapes:
        encoder states ``[batch, positions, hidden]``; caches ``[batch, heads, positions, head_dim]``

    Before:
        encoder: last_hidden_state
        first decoder: encoder_hidden_states (Parameter) -> MatMul -> Reshape -> Transpose -> present.0.encoder.key
    After:
        encoder: last_hidden_state -> MatMul -> Reshape -> Transpose -> present.0.encoder.key

    Attributes:
        source: File, in the encoder's folder, of the decoder for the first step or of a merged decoder.

    Raises:
        PreconditionError: GP345, the source computes no caches from encoder states, or belongs to another encoder.
        ReadError: The source cannot be read.
    """

    name = "fill-cross-caches"
    dialect = "onnx"

    source: str = ""

    def run(self, model: OnnxModel) -> Done:
        graph = model.graph
        states = [result.source() for result in graph.of_op("Result") if _is_real(result.source(), 3)]
        if len(states) != 1:
            raise _refusal(f"expected 1 output [batch, positions, hidden] of the encoder, got {len(states)}")
        if filled_caches(model):
            return Done()
        if not self.source:
            raise _refusal("the decoder for the first step computes the caches, and option source does not name it")
        loaded = load(Path(self.source))
        source = _counting_rows(loaded)
        _check_pair(model, source)
        caches = _caches(source.graph)
        if not caches:
            raise _refusal(f"no output of {source.path} depends on encoder states only")
        rewriter, donor = model.rewriter(), source.rewriter()
        moved = list(source.graph.backward([value for _, value in caches], lambda node: node.inputs))
        (read,) = (node.outputs[0] for node in moved if node.op == "Parameter")
        donor.redirect_uses(read, rewriter.handle(states[0]))
        weights = NewWeights(source.path, _NAME)
        for node in moved:
            if node.op == "Constant" and is_external(node.native) and not is_merged(loaded.graph):
                _write(weights, rewriter, donor, node)
            elif node.op != "Parameter":
                rewriter.adopt(donor, node, _NAME)
        weights.finish()
        sizes = dict(zip(read.shape or (), states[0].shape or (), strict=True))
        for name, value in caches:
            shape = [_known(sizes, size) for size in value.shape or ()]
            rewriter.output(name, donor.native(value), value.element_type, shape)
        rewriter.finish()
        model.scratch += () if weights.file is None else (weights.file,)
        model.weight_files += source.weight_files if is_merged(loaded.graph) else ()
        return Done({"cross caches": len(caches), "operators": sum(node.op not in _NO_WORK for node in moved)})


#: Prefix of the names of moved nodes and of the data file.
_NAME = "cross_caches"

_NO_WORK = {"Parameter", "Constant"}


def _refusal(reason: str) -> PreconditionError:
    return PreconditionError("GP345", reason, "fill-cross-caches{source=path/to/decoder_model.onnx}")


def _is_real(value: Value, rank: int) -> bool:
    return value.rank == rank and value.element_type in REALS


def _known(sizes: dict[Dimension, Dimension], declared: Dimension) -> Dimension:
    return sizes.get(declared, declared) if isinstance(declared, str) else declared


def _write(weights: NewWeights, rewriter: OnnxRewriter, donor: OnnxRewriter, node: Node) -> None:
    """Write a weight of the first decoder to the new data file."""
    written = weights.written(node.native.data_type, node.native.dims, weights.pieces(node.native), external=True)
    value = node.outputs[0]
    donor.redirect_uses(value, weights.declare(rewriter, written, f"{_NAME}/{value.name}"))


def _counting_rows(loaded: Model) -> OnnxModel:
    """Return the first decoder, with Reshapes of encoder states that keep the batch size.

    Exporters write the batch size of the tokens there, which is equal.
    """
    model = first_decoder(loaded)
    assert isinstance(model, OnnxModel)
    graph, rewriter = model.graph, model.rewriter()
    rows = {(node.index, 0): "rows" for node in graph.of_op("Parameter") if node.outputs[0].rank}
    sizes = Sizes(graph, rows, assumes=True)
    for node in graph.of_op("Reshape"):
        if graph.producer(node.source(1)).op != "Constant" and (shape := constant_shape(node, sizes)) is not None:
            rewriter.set_shape(node, shape)
    rewriter.finish()
    return model


def _check_pair(encoder: OnnxModel, source: OnnxModel) -> None:
    assert encoder.path is not None
    assert source.path is not None
    versions = [opset_of(model.proto) for model in (encoder, source)]
    if versions[0] != versions[1]:
        raise _refusal(f"{encoder.path.name} has opset {versions[0]}, but {source.path.name} has {versions[1]}")
    if encoder.path.parent.resolve() != source.path.parent.resolve():
        raise _refusal(f"{source.path} is not in the folder of {encoder.path}, to which paths of weights are relative")


def _caches(graph: Graph) -> list[tuple[str, Value]]:
    """Return the outputs ``[batch, heads, positions, head_dim]`` that depend on encoder states only."""
    caches = []
    for result in graph.of_op("Result"):
        if _is_real(result.source(), 4):
            upstream = graph.backward([result.source()], lambda node: node.inputs)
            inputs = [node for node in upstream if node.op == "Parameter"]
            if len(inputs) == 1 and is_states(inputs[0]):
                caches.append((result.name, result.source()))
    return caches
