"""Names and initial values of packed caches, for the passes `pack` and `unpack`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from graphpass.analysis.caches.pairs import is_stateful
from graphpass.ir.cache import Cache
from graphpass.ir.declaration import Declaration
from graphpass.ir.graph import Value
from graphpass.ir.model import Model
from graphpass.ir.rewriter import Rewriter
from graphpass.ir.values import is_scalar
from graphpass.ir.writer import Handle

#: A name that `joined_name` returned.
_JOINED = re.compile(r"\w+(?:\+\w+)+")

_BOTH = re.compile(r"(?<![A-Za-z])key_value(?![A-Za-z])")


def packed_name(names: Sequence[str]) -> str:
    """Return the name of a packed key and value, ``past.0.key_value``; see `part_names`.

    If the names differ in more than ``key`` and ``value``, the result is their common prefix, both differing parts, and
    their common suffix.
    """
    key, value = names
    for match in reversed(list(re.finditer("key", key))):
        if key[: match.start()] + "value" + key[match.end() :] == value:
            return key[: match.start()] + "key_value" + key[match.end() :]
    start = _shared([key, value])
    end = _shared([key[start:][::-1], value[start:][::-1]])
    return f"{key[: len(key) - end]}_{value[start:]}"


def part_names(name: str) -> tuple[str, str]:
    """Return the names of the key and the value of the packed cache ``name``."""
    matches = list(_BOTH.finditer(name))
    if not matches:
        return f"{name}.key", f"{name}.value"
    start, end = matches[-1].span()
    return f"{name[:start]}key{name[end:]}", f"{name[:start]}value{name[end:]}"


def joined_name(names: Sequence[str]) -> str:
    """Return the name of a packed cache: ``past.conv+ssm.0`` for ``past.conv.0`` and ``past.ssm.0``."""
    words = [re.findall(r"\w+|\W", name) for name in names]
    start = _shared(words)
    end = _shared([parts[start:][::-1] for parts in words])
    stops = [len(parts) - end for parts in words]
    middle = "+".join("".join(parts[start:stop]) for parts, stop in zip(words, stops, strict=True))
    return "".join([*words[0][:start], middle, *words[0][stops[0] :]])


def _shared(words: Sequence[Sequence[str]]) -> int:
    columns = enumerate(zip(*words, strict=False))
    return next((index for index, column in columns if len(set(column)) > 1), min(map(len, words)))


def split_name(name: str, count: int) -> list[str]:
    """Return the names of the parts of a packed cache, the inverse of `joined_name`.

    Args:
        name: Name of the cache; if `joined_name` did not make it, the parts are ``name.0``, ``name.1`` and so on.
        count: Number of parts.
    """
    for match in _JOINED.finditer(name):
        words = match[0].split("+")
        if len(set(words)) == len(words) == count:
            return [name[: match.start()] + word + name[match.end() :] for word in words]
    return [f"{name}.{index}" for index in range(count)]


def names_together(model: Model, caches: Sequence[Cache], join: Callable[[Sequence[str]], str]) -> tuple[str, str]:
    """Return past and present name of a packed cache; for a variable, its id twice.

    Args:
        model: The model, which gets the names of a new variable.
        caches: The caches to pack.
        join: Returns the name of the packed cache from the names of pasts, or of presents.
    """
    pasts, presents = zip(*(_ports(model, cache) for cache in caches), strict=True)
    return _called(model, caches[0], join(pasts), join(presents))


def names_apart(model: Model, cache: Cache, split: Callable[[str], Iterable[str]]) -> list[tuple[str, str]]:
    """Return past and present name of each part; for a variable, its id twice.

    Args:
        model: The model, which gets the names of new variables.
        cache: The packed cache.
        split: Returns the names of the parts from the name of the past, or of the present.
    """
    pasts, presents = (split(name) for name in _ports(model, cache))
    return [_called(model, cache, *pair) for pair in zip(pasts, presents, strict=True)]


def _ports(model: Model, cache: Cache) -> tuple[str, str]:
    """Return the names of past and present; a variable's id twice if it lacks them."""
    if not is_stateful(model):
        return cache.read, str(cache.write)
    from graphpass.dialects.openvino.variables import split_id

    names = split_id(model, cache.name)
    return (cache.name, cache.name) if names[0] == f"input_restored.{cache.name}" else names


def _called(model: Model, like: Cache, past: str, present: str) -> tuple[str, str]:
    if not is_stateful(model):
        return past, present
    if past == present:
        return past, past
    from graphpass.dialects.openvino.variables import add_names

    add_names(model, {f"{past}{present}": (past, present)}, like.name)
    return f"{past}{present}", f"{past}{present}"


def resized_start(rewriter: Rewriter, start: Value, sizes: Sequence[int | None], name: str) -> Handle | None:
    """Write an initial value like ``start`` with other sizes.

    Args:
        rewriter: Rewriter of the model.
        start: The initial value of a variable.
        sizes: See `Rewriter.add_past`.
        name: Name of the tensor.

    Returns:
        The tensor; ``None`` if ``start`` is not a Broadcast of a scalar to a constant or concatenated shape.
    """
    graph = rewriter.graph
    node = graph.producer(start)
    if node.op != "Broadcast" or len(node.inputs) != 2 or not is_scalar(node.source()):
        return None
    shape = node.source(1)
    known, maker = graph.constant(shape), graph.producer(shape)
    kept = [(index, size) for index, size in enumerate(sizes) if size != -1]
    if known is not None:
        made = rewriter.constant(
            [int(known[index]) if size is None else size for index, size in kept], "i64", f"{name}/shape"
        )
        return rewriter.clone(node, {1: made}, name)
    if maker.op != "Concat" or any(value is None or value.shape != (1,) for value in maker.inputs):
        return None
    parts = [
        maker.source(index) if size is None else rewriter.constant([size], "i64", f"{name}/size_{index}")
        for index, size in kept
    ]
    return rewriter.clone(node, {1: rewriter.op("Concat", *parts, axis=0, name=f"{name}/shape")}, name)


def finish(model: Model, rewriter: Rewriter, made: Mapping[str, Sequence[Declaration]]) -> None:
    """Finish the edits, and replace declarations of removed caches.

    Args:
        model: The model.
        rewriter: Its rewriter.
        made: New declarations by the name of a removed cache; other declarations are unchanged.
    """
    rewriter.finish()
    model.declare(new for declaration in model.declarations for new in made.get(declaration.name, [declaration]))
