"""Compare weights of models by contents."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

from graphpass.dialects.weights import Weight, digests_of_weights, weights_of
from graphpass.ir.model import Model
from graphpass.reports.diff.changes import Change, WeightChanges
from graphpass.storage.weight_file import FileRange


def digest_of_weights(model: Model) -> str:
    """Digest names, types, shapes and bytes of all tensors outside a model's graph file.

    Places in files do not count, nor bytes between tensors.

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
    """Return how weights differ.

    Weights of the same name, element type and size are compared by digest, unless they are the same bytes of the same
    file. Of the others, those with the same contents under another name count as renamed.

    Raises:
        ReadError: GP110, a file of weights changed since the model was read.
    """
    news = {weight.name: weight for weight in after}
    pairs = [(old, news[old.name]) for old in before if old.name in news]
    paired = {old.name for old, _ in pairs}
    gone = [weight for weight in before if weight.name not in paired]
    added = [weight for weight in after if weight.name not in paired]
    # Results that share their input's weights read the same bytes under other names: nothing is left to digest.
    renamed = _renamed(gone, added, lambda weight: weight.bytes_of)
    left = [weight for weight in gone if weight not in renamed]
    weights = set(renamed.values())
    added = [weight for weight in added if weight not in weights]
    likenesses = {_likeness(weight) for weight in left} & {_likeness(weight) for weight in added}
    asked = [weight for weight in (*left, *added) if _likeness(weight) in likenesses]
    asked += [weight for pair in pairs if _is_open(*pair) for weight in pair]
    digests = digests_of_weights(asked)
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
    """Pair weights alike whose ``content`` is known and equal, each once."""
    open_ones: dict[object, list[Weight]] = {}
    for weight in reversed(added):
        open_ones.setdefault((_likeness(weight), content(weight)), []).append(weight)
    candidates = {old: open_ones.get((_likeness(old), content(old)), []) for old in gone if content(old) is not None}
    return {old: alike.pop() for old, alike in candidates.items() if alike}


def _likeness(weight: Weight) -> tuple[object, ...]:
    return weight.described, weight.size


def _is_open(old: Weight, new: Weight) -> bool:
    """Return whether only the bytes can show that two weights are the same."""
    return old.size == new.size and (old.bytes_of is None or old.bytes_of != new.bytes_of)


def _facets(old: Weight, new: Weight, digests: dict[Weight, str]) -> tuple[dict[str, str], dict[str, str]]:
    facts = {
        "is": (old.described, new.described),
        "bytes": (str(old.size), str(new.size)),
        "sha256": (digests.get(old, ""), digests.get(new, "")),
    }
    differing = {key: words for key, words in facts.items() if words[0] != words[1]}
    return {key: words[0] for key, words in differing.items()}, {key: words[1] for key, words in differing.items()}
