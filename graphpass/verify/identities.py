"""Identify equal weights of two models by their bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

from graphpass.dialects.rounding import Half
from graphpass.dialects.weights import digests_in, digests_of_weights, holder_of, weights_of

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

    from graphpass.dialects.weights import Weight
    from graphpass.ir.model import Model


Contents = dict[int, "Hashable"]
"""Identity of each weight by index of its Constant; weights of equal bytes have equal identities in both models."""


def identify(reference: Model, candidate: Model) -> tuple[Contents, Contents]:
    """Identify all weights of both models by their bytes.

    Weights that both models read from the same offset of a file are equal without being read. Others are compared by
    digest if their sizes match.

    Args:
        reference: The reference model. Its weights in f32 have the identities of the candidate's weights in f16 or bf16
            that equal them after rounding.
        candidate: The candidate model.

    Returns:
        The identities of the reference's and of the candidate's weights.

    Raises:
        ReadError: GP105, GP110 and GP111, as `weights_of` and `digests_of_weights`.
    """
    by_holder = [{weight.holder: weight for weight in weights_of(model, above=0)} for model in (reference, candidate)]
    places = [{weight.bytes_of for weight in weights.values()} for weights in by_holder]
    shared = (places[0] & places[1]) - {None}
    asked = [[weight for weight in weights.values() if weight.bytes_of not in shared] for weights in by_holder]
    sizes = {weight.size for weight in asked[0]} & {weight.size for weight in asked[1]}
    halved = {half: _sizes_of(asked[1], half) - _sizes_of(asked[0], half) for half in get_args(Half)}
    read = sizes.union(*halved.values())
    digests = digests_of_weights(weight for weights in asked for weight in weights if weight.size in read)
    made = {digests[weight] for weight in asked[1] if weight in digests}
    wide = [weight for weight in asked[0] if weight.element_type == "f32"]
    for half, narrow in halved.items():
        rounded = digests_in(half, (weight for weight in wide if weight.size // 2 in narrow))
        digests |= {weight: digest for weight, digest in rounded.items() if digest in made}

    def identity(weight: Weight) -> Hashable:
        if weight.bytes_of in shared:
            return weight.bytes_of
        return digests.get(weight, id(weight))

    first, second = (
        {
            node.index: identity(weights[holder_of(node)])
            for node in model.graph.of_op("Constant")
            if holder_of(node) in weights
        }
        for model, weights in zip((reference, candidate), by_holder, strict=True)
    )
    return first, second


def _sizes_of(weights: Iterable[Weight], element_type: str) -> set[int]:
    return {weight.size for weight in weights if weight.element_type == element_type}
