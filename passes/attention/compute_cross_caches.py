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

    Exporters split a decoder in two: one for the first step, which computes these caches and returns them, and one for
    all others, which takes them as inputs. The nodes that compute them in the first are copied into the second. Its
    weights stay in their files. With an empty past the second one computes the first step, too.

    Before:
        past_key_values.0.encoder.key (Parameter) -> attention
    After:
        encoder_hidden_states (Parameter) -> MatMul -> Reshape -> Transpose -> attention

    Attributes:
        source: The file of the decoder for the first step, or of both as branches of an If.

    Raises:
        PreconditionError: GP345, the source does not return a cache, or computes it from an input that is missing here.
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
    """Return the first value of ``cache``."""
    wanted = cache.filled_by
    writer = source.graph.writes.get(wanted)
    if writer is None:
        reason = f"{source.path} does not compute cache {cache.read}: it has no output {wanted}"
        raise PreconditionError("GP345", reason, "name the decoder model for the first step")
    return writer.source()
