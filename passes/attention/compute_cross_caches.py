"""The pass `compute-cross-caches`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.engine.passes import Done, Pass
from graphpass.errors import PreconditionError
from graphpass.io import load
from graphpass.ir.cache import Cache
from graphpass.ir.graph import Value
from graphpass.passes.attention.first_decoders import first_decoder, is_states
from graphpass.passes.convert.to_openvino import ToOpenVINO


@dataclass(frozen=True)
class ComputeCrossCaches(Pass[OpenVINOModel]):
    """Compute keys and values of cross attention inside a decoder, from encoder states.

    Exporters split a decoder in two: the decoder of the first step computes these caches and returns them, the decoder
    of later steps reads them as inputs. The pass copies the nodes that compute the caches into the second decoder,
    which then also executes the first step, with an empty past. Weights stay in their files.

    Before:
        past_key_values.0.encoder.key (Parameter) -> attention
    After:
        encoder_hidden_states (Parameter) -> MatMul -> Reshape -> Transpose -> attention

    Attributes:
        source: File of the decoder for the first step, or of a merged decoder, whose If has both as branches.

    Raises:
        PreconditionError: GP345, the source does not return a cache, or computes it from an input that the model does
            not have.
        ReadError: The source cannot be read.
    """

    name = "compute-cross-caches"
    dialect = "openvino"

    source: str = ""

    def run(self, model: OpenVINOModel) -> Done:
        inputs = model.graph.parameters
        caches = [cache for cache in analyze_caches(model).of_kind("cross") if cache.read in inputs]
        if not caches:
            return Done()
        if not self.source:
            reason = f"cache {caches[0].read} is computed by another model, and option source does not name it"
            raise PreconditionError("GP345", reason, "compute-cross-caches{source=path/to/decoder_model.onnx}")
        source = _in_openvino(Path(self.source))
        computed = [_computed(source, cache) for cache in caches]
        rewriter, donor = model.rewriter(), source.rewriter()
        moved = list(source.graph.backward(computed, lambda node: node.inputs))
        for node in moved:
            if node.op != "Parameter":
                donor.adopt(node, f"cross_caches/{node.name}")
                continue
            own = inputs.get(node.name)
            if own is None and not is_states(node):
                reason = f"{source.path} computes caches from input {node.name}, which the other decoder does not have"
                raise PreconditionError("GP345", reason, "name the two decoders of one export")
            output = node.outputs[0]
            new = rewriter.input(node.name, output.element_type, output.shape or ()) if own is None else own
            donor.redirect_uses(output, rewriter.handle(new))
        for cache, value in zip(caches, computed, strict=True):
            rewriter.replace(inputs[cache.read], donor.native(value))
            rewriter.drop([model.graph.producer(inputs[cache.read])])
        rewriter.finish()
        model.weight_files += source.weight_files
        return Done({"cross caches": len(caches), "operators": sum(node.op != "Parameter" for node in moved)})


def _in_openvino(path: Path) -> OpenVINOModel:
    model = load(path)
    model = first_decoder(model, (ToOpenVINO(),) if model.dialect == "onnx" else ())
    assert isinstance(model, OpenVINOModel)
    return model


def _computed(source: OpenVINOModel, cache: Cache) -> Value:
    """Return the value that ``source`` computes for ``cache``.

    Raises:
        PreconditionError: GP345, ``source`` does not return the value.
    """
    wanted = cache.filled_by
    writer = source.graph.writes.get(wanted)
    if writer is None:
        reason = f"{source.path} does not compute cache {cache.read}: it has no output {wanted}"
        raise PreconditionError("GP345", reason, "name the decoder model for the first step")
    return writer.source()
