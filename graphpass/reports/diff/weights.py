"""Comparison of the weights of two models by contents."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

from graphpass.dialects.weights import Weight, digests_of_weights, weights_of
from graphpass.ir.model import Model
from graphpass.reports.diff.changes import Change, WeightChanges
from graphpass.storage.weight_file import FileRange


def digest_of_weights(model: Model) -> str:
    """Return a digest of names, types, shapes and bytes of tensors outside the model file.

    Locations in files and bytes between tensors are ignored.

    Raises:
        ReadError: GP105, GP110 and GP111, as `weights_of` and `digests_of`.
    """
    weights = weights_of(model, above=0)
    if model.dialect == "onnx":
        weights = tuple(weight for weight in weights if isinstance(weight.content, FileRange))
    digests = digests_of_weights(weights)
    hasher = hashlib.sha256()
    for weight in sorted(weights, key=lambda weight: weight.name):
        hasher.update(repr((weight.name, weight.described, digests[weight])).encode())
    return hasher.hexdigest()


def compare_weights(before: Sequence[Weight], after: Sequence[Weight]) -> WeightChanges:
    """Return the differences between the weights of two models.

    Weights of the same name, element type and size are compared by digest, unless both are the same range of the same
    file. Remaining weights with equal contents count as renamed.

    Args:
        before: Weights of the first model, from `weights_of`.
        after: Weights of the second model.

    Raises:
        ReadError: GP110, a weight file changed since the model was read.
    """
    news = {weight.name: weight for weight in after}
    pairs = [(old, news[old.name]) for old in before if old.name in news]
    paired = {old.name for old, _ in pairs}
    gone = [weight for weight in before if weight.name not in paired]
    added = [weight for weight in after if weight.name not in paired]
    # Results that share weights with the input read the same ranges under other names, without digests.
    renamed = _renamed(gone, added, lambda weight: weight.bytes_of)
    left = [weight for weight in gone if weight not in renamed]
    weights = set(renamed.values())
    added = [weight for weight in added if weight not in weights]
    forms = {_form(weight) for weight in left} & {_form(weight) for weight in added}
    compared = [weight for weight in (*left, *added) if _form(weight) in forms]
    compared += [weight for pair in pairs if _is_open(*pair) for weight in pair]
    digests = digests_of_weights(compared)
    renamed |= _renamed(left, added, digests.get)
    weights = set(renamed.values())

    changes = []
    unchanged = changed = 0
    for old, new in pairs:
        same = old.size == new.size and digests.get(old) == digests.get(new)
        unchanged, changed = (unchanged + old.size, changed) if same else (unchanged, changed + max(old.size, new.size))
        if not same or old.described != new.described:
            changes.append(Change(old.name, *_facets(old, new, digests)))
    for old in gone:
        if old in renamed:
            unchanged += old.size
            changes.append(Change(old.name, {"name": old.name}, {"name": renamed[old].name}))
        else:
            changed += old.size
            changes.append(Change(old.name, {"is": old.described}, None))
    for new in added:
        if new not in weights:
            changed += new.size
            changes.append(Change(new.name, None, {"is": new.described}))
    return WeightChanges(len(before), len(after), unchanged, changed, tuple(changes))


def _renamed(
    gone: Sequence[Weight], added: Sequence[Weight], content: Callable[[Weight], object]
) -> dict[Weight, Weight]:
    """Return pairs of weights of equal type, size and ``content``, each weight at most once."""
    unpaired: dict[object, list[Weight]] = {}
    for weight in reversed(added):
        unpaired.setdefault((_form(weight), content(weight)), []).append(weight)
    candidates = {old: unpaired.get((_form(old), content(old)), []) for old in gone if content(old) is not None}
    return {old: equal.pop() for old, equal in candidates.items() if equal}


def _form(weight: Weight) -> tuple[object, ...]:
    return weight.described, weight.size


def _is_open(old: Weight, new: Weight) -> bool:
    """Return whether two weights must be compared by their bytes."""
    return old.size == new.size and (old.bytes_of is None or old.bytes_of != new.bytes_of)


def _facets(old: Weight, new: Weight, digests: dict[Weight, str]) -> tuple[dict[str, str], dict[str, str]]:
    facts = {
        "is": (old.described, new.described),
        "bytes": (str(old.size), str(new.size)),
        "sha256": (digests.get(old, ""), digests.get(new, "")),
    }
    differing = {key: pair for key, pair in facts.items() if pair[0] != pair[1]}
    return {key: pair[0] for key, pair in differing.items()}, {key: pair[1] for key, pair in differing.items()}
