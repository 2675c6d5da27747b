"""Find weights that differ from a weight of the reference in few elements.

Passes copy weights, permute them, or compute new values. A weight that differs from one of the reference's in a few
elements only is damaged, and single elements have little effect on logits.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from graphpass.ir.values import REALS
from graphpass.verify.identities import identify

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from graphpass.ir.graph import Value
    from graphpass.ir.model import Model

#: Minimum and maximum number of elements of compared weights.
_LEAST, _MOST = 256, 2**28

#: Number of elements that are sampled first, and the maximum share of differing elements that is reported.
_SAMPLED, _FEW = 4096, 0.005


def damaged_weight(reference: Model, candidate: Model) -> tuple[str, str] | None:
    """Return the first weight that differs in few elements, and the difference, as text.

    Weights of equal bytes are found by digests. The others are compared with all of equal type and shape.

    Args:
        reference: The reference model.
        candidate: The candidate model.

    Returns:
        ``None`` if no weight is damaged.

    Raises:
        ReadError: GP105, GP110 and GP111, weights cannot be read.
    """
    contents = identify(reference, candidate)
    known, kept = (set(content.values()) for content in contents)
    gone = _by_form(reference, contents[0], kept)
    for form, made in _by_form(candidate, contents[1], known).items():
        for value in made:
            for other in gone.get(form, ()):
                words = _few_differences(_flat(reference, other), _flat(candidate, value), other)
                if words is not None:
                    return f"weight {value.name}", words
    return None


def _by_form(
    model: Model, identities: Mapping[int, Hashable], others: set[Hashable]
) -> dict[tuple[str, tuple[int, ...]], list[Value]]:
    """Return the weights of ``model`` whose identity is not among ``others``, by type and shape."""
    by_form: dict[tuple[str, tuple[int, ...]], list[Value]] = {}
    for node in model.graph.of_op("Constant"):
        value = node.outputs[0]
        sizes = tuple(size for size in value.shape or () if isinstance(size, int))
        is_weight = value.element_type in REALS and _LEAST <= math.prod(sizes) <= _MOST
        if is_weight and node.index in identities and identities[node.index] not in others:
            by_form.setdefault((value.element_type, sizes), []).append(value)
    return by_form


def _flat(model: Model, value: Value) -> np.ndarray:
    constant = model.graph.constant(value, _MOST)
    assert constant is not None
    return constant.reshape(-1)


def _few_differences(reference: np.ndarray, candidate: np.ndarray, value: Value) -> str | None:
    step = max(1, len(reference) // _SAMPLED)
    if (reference[::step] != candidate[::step]).mean() > 2 * _FEW:
        return None
    places = np.flatnonzero((reference != candidate) & ~(np.isnan(reference) & np.isnan(candidate)))
    if not 0 < len(places) <= max(1, _FEW * len(reference)):
        return None
    if np.array_equal(np.sort(reference[places]), np.sort(candidate[places])):
        return None  # the elements are permuted, as by a pass that reorders heads or channels
    where = tuple(
        int(axis) for axis in np.unravel_index(places[0], [size for size in value.shape or () if isinstance(size, int)])
    )
    return (
        f"{len(places)} of {len(reference)} numbers differ from those of {value.name}: first at {list(where)}, "
        f"reference {reference[places[0]]:.7g}, candidate {candidate[places[0]]:.7g}"
    )
