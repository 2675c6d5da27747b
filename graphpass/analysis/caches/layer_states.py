"""Find the residual stream after each layer."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from graphpass.analysis.caches.chain import SKIP_NORMS, LayerChain, Pieces, find_chain

if TYPE_CHECKING:
    from graphpass.ir.graph import Value
    from graphpass.ir.model import Model

#: Inputs that operators of `SKIP_NORMS` add: two activations, and a bias that may be absent.
_TERMS = {"SkipSimplifiedLayerNormalization": (0, 1, 3), "SkipLayerNormalization": (0, 1, 4)}

LayerState: TypeAlias = "tuple[Value, ...]"
"""The output ``[batch, length, hidden]`` of a layer; several values are terms of a sum that is not a value itself."""


def find_layer_states(model: Model) -> tuple[LayerState, ...] | str:
    """Return the state after each layer, in order, or the reason without such states.

    A layer is a part of the model that reads or writes caches. It begins at the last value before these caches that is
    on every path from tokens to logits, and ends where the next layer begins. Layers without caches belong to the
    previous layer. The last layer ends at the last sum of two activations, before the final norm.
    """
    chain = find_chain(model)
    if isinstance(chain, str):
        return chain
    pieces = Pieces(chain.graph, chain.deep, chain.values)
    layers: dict[int, set[int]] = {}
    for cache in chain.caches:
        for piece in pieces.touched(cache):
            layers.setdefault(piece, set()).update(() if cache.layer is None else (cache.layer,))
    starts = sorted(layers)
    if not starts or starts[0] == 0:
        return "no caches are between values that all computation passes"
    joined = next((sorted(numbers) for _, numbers in sorted(layers.items()) if len(numbers) > 1), None)
    if joined is not None:
        return f"no single value carries all computation from layer {joined[0]} to layer {joined[1]}"
    ends = [(chain.values[start - 1],) for start in starts[1:]]
    last = _last_sum(chain, starts[-1])
    return "no sum of two activations ends the last layer" if last is None else (*ends, last)


def _last_sum(chain: LayerChain, start: int) -> LayerState | None:
    for value in reversed(chain.values[start:]):
        node = chain.graph.producer(value)
        total, _ = SKIP_NORMS.get(node.op, (0, ()))
        if node.op in SKIP_NORMS and value.port != total:
            terms = (node.inputs[port] for port in _TERMS[node.op] if port < len(node.inputs))
            return tuple(term for term in terms if term is not None)
        if node.op in SKIP_NORMS:
            return (value,)
        added = [value for value in node.sources if value.node in chain.deep]
        if node.op == "Add" and len(added) == 2:
            return (value,)
    return None
