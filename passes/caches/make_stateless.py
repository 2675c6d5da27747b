"""The pass `make-stateless`."""

from __future__ import annotations

from dataclasses import dataclass, replace

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.analysis.caches.past import beam_gather
from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.dialects.openvino.rewriter import OpenVINORewriter
from graphpass.dialects.openvino.variables import forget_names, split_id
from graphpass.engine.conditions import STATEFUL, STATELESS
from graphpass.engine.passes import Done, Pass
from graphpass.errors import UnsupportedError
from graphpass.ir.graph import Value
from graphpass.passes.caches.slots import conversions


@dataclass(frozen=True)
class MakeStateless(Pass[OpenVINOModel]):
    """Replace variables by past inputs and present outputs: the inverse of make-stateful.

    Names are parsed from the variable's id. The beam Gather and the input ``beam_idx`` are removed: the caller, who
    stores the caches, reorders them. New inputs and outputs follow the others, ordered by layer, key before value.

    Before:
        ReadValue(initial) -> Gather(., beam_idx, 0) -> Concat(., new) -> Assign
    After:
        past_key_values.0.key (Parameter) -> Concat(., new) -> present.0.key (Result)

    Raises:
        PreconditionError: GP302, the model is not stateful.
        UnsupportedError: GP315, a variable is not carried from step to step: it is computed once and only read.
    """

    name = "make-stateless"
    dialect = "openvino"
    requires = (STATEFUL,)
    ensures = (STATELESS,)

    def run(self, model: OpenVINOModel) -> Done:
        caches = analyze_caches(model).caches
        for cache in caches:
            if cache.kind not in {"kv", "linear", "other"} or cache.role == "adapter":
                raise UnsupportedError(
                    "GP315",
                    f"variable {cache.name} is not a cache carried from step to step: {'; '.join(cache.evidence)}",
                )
        rewriter = model.rewriter()
        names = {cache.name: split_id(model, cache.name) for cache in caches}
        for cache in caches:
            past, present = names[cache.name]
            write = model.graph.writes[cache.write]
            _read_input(rewriter, model.graph.reads[cache.read].outputs[0], past)
            source = write.source()
            rewriter.output(present, rewriter.native(source), source.element_type, source.shape or ())
            rewriter.drop([write])
        rewriter.drop_input("beam_idx")
        forget_names(model)
        model.declare(replace(declaration, name=names[declaration.name][0]) for declaration in model.declarations)
        rewriter.finish()
        return Done({"variables removed": len(caches)})


def _read_input(rewriter: OpenVINORewriter, state: Value, name: str) -> None:
    """Replace a variable and its beam Gather by a new input ``name``."""
    past = rewriter.input(name, state.element_type, rewriter.native(state).get_partial_shape())
    graph = rewriter.graph
    converts = conversions(graph, state)
    if gather := beam_gather(graph, state) or (beam_gather(graph, converts[0].outputs[0]) if converts else None):
        for use in graph.uses(gather.outputs[0]):
            rewriter.redirect(use.node, use.port, past if gather.source() == state else gather.source())
    for use in graph.uses(state):
        rewriter.redirect(use.node, use.port, past)
