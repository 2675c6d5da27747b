"""The pass `expose-hidden-states`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

from graphpass.analysis.caches.layer_states import LayerState, find_layer_states
from graphpass.engine.passes import Done, Pass, Skipped
from graphpass.errors import UsageError
from graphpass.ir.inputs import HIDDEN_STATES, token_input
from graphpass.ir.model import Model
from graphpass.ir.rewriter import Rewriter
from graphpass.ir.values import fixed_size

_LOGITS = "logits"


@dataclass(frozen=True)
class ExposeHiddenStates(Pass[Model]):
    """Add outputs for the residual stream after selected layers.

    Heads for speculative decoding read hidden states: EAGLE-3 of three layers (2, half of all, all but 3), heads for
    multi-token prediction (MTP) of the last layer. `graphpass.runtime.speculative.HiddenStateDraft` feeds them.

    Layers are found by dataflow: the layers with caches, in execution order. The state after a layer is the value on
    which all later computation depends; for the last layer, the sum before the final norm. transformers names the state
    after layer i ``hidden_states[i + 1]``, and returns the state of the last layer after the norm.

    Options:
        layers: Indices of layers, from 0; -1 is the last layer.

    Shapes:
        ``hidden_states.N`` is f32 ``[batch, length, hidden]``, of all new tokens

    Before:
        layer N -> norm -> layer N + 1
    After:
        layer N -> norm -> layer N + 1, layer N -> Convert(f32) -> hidden_states.N

    Raises:
        UsageError: GP253, the model has no such layer.
    """

    name = "expose-hidden-states"

    layers: tuple[int, ...] = (-1,)

    def run(self, model: Model) -> Done | Skipped:
        graph = model.graph
        if _LOGITS not in graph.writes:
            return Skipped("the model has no output logits, from which hidden states could be distinguished")
        states = find_layer_states(model)
        if isinstance(states, str):
            return Skipped(states)
        count = len(states)
        wrong = next((layer for layer in self.layers if not -count <= layer < count), None)
        if wrong is not None:
            hint = f"name layers from 0 to {count - 1}, or from -{count} to -1"
            raise UsageError("GP253", f"there is no layer {wrong}: the model has {count}", hint)
        chosen = sorted({layer % count for layer in self.layers})
        added = [layer for layer in chosen if f"{HIDDEN_STATES}{layer}" not in graph.writes]
        rewriter = model.rewriter()
        for layer in added:
            _expose(rewriter, f"{HIDDEN_STATES}{layer}", states[layer])
        rewriter.finish()
        return Done({"outputs added": len(added)})


def _expose(rewriter: Rewriter, name: str, state: LayerState) -> None:
    write, tokens = rewriter.under(name), token_input(rewriter.graph)
    assert tokens is not None
    assert tokens.shape is not None
    first = state[0]
    total = reduce(lambda left, right: write.op("Add", left, right), state[1:], rewriter.handle(first))
    sizes = (*tokens.shape[:2], fixed_size(first, -1))
    rewriter.output(name, write.convert(total, "f32"), "f32", sizes)
