"""What a model holds, as text and as JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from .console import columns

if TYPE_CHECKING:
    from collections.abc import Iterable

    from graphpass.caches import AttentionBlock, Axes, Cache, Inventory
    from graphpass.model import Dimension, Model, Port

__all__ = ["as_json", "as_text", "in_short"]

_FORMATS = {"onnx": "ONNX", "openvino": "OpenVINO IR"}


def as_json(model: Model, inventory: Inventory) -> dict[str, Any]:
    """The object that ``inspect --format json`` prints."""
    return {
        "format": model.dialect,
        "kind": inventory.kind,
        "stateful": inventory.stateful,
        "caches": [_cache_json(cache) for cache in inventory.caches],
        "attention": [asdict(block) for block in inventory.attention],
        "inputs": [_port_json(port) for port in model.inputs],
        "outputs": [_port_json(port) for port in model.outputs],
    }


def as_text(model: Model, inventory: Inventory, *, details: bool = False) -> str:
    """The same for people, with what is alike in one line.

    Args:
        model: The model.
        inventory: Its inventory.
        details: Also each cache with its names and the evidence.
    """
    state = "stateful" if inventory.stateful else "stateless"
    lines = [f"{model.path}: {_FORMATS[model.dialect]}, {state}, kind {inventory.kind}"]
    pasts = {cache.read for cache in inventory.caches} | {cache.write for cache in inventory.caches}
    for word, ports in (("inputs", model.inputs), ("outputs", model.outputs)):
        plain = [port for port in ports if port.name not in pasts]
        lines += ["", _heading(word, len(plain), len(ports) - len(plain))]
        lines += columns([(port.name, port.element_type, _shape(port.shape)) for port in plain]) if plain else []
    lines += ["", f"caches ({len(inventory.caches)})"]
    lines += _folded_caches(inventory.caches)
    if details:
        for cache in inventory.caches:
            lines += ["", f"  {cache.name}: {cache.read} -> {cache.write or 'only read'}"]
            lines += [f"    {fact}" for fact in cache.evidence]
    unpaired = [f"  input {name} has no present" for name in inventory.unpaired_inputs]
    unpaired += [f"  output {name} has no past" for name in inventory.unpaired_outputs]
    if unpaired:
        lines += ["", f"not paired ({len(unpaired)})", *unpaired]
    lines += ["", f"attention ({len(inventory.attention)})"]
    lines += [f"  {text}" for text in _folded_attention(inventory.attention)]
    return "\n".join(lines)


def in_short(model: Model, inventory: Inventory) -> str:
    """One line."""
    state = "stateful" if inventory.stateful else "stateless"
    kinds = _counts(cache.kind for cache in inventory.caches)
    caches = ", ".join(f"{count} {kind}" for kind, count in kinds.items()) or "no"
    attention = "; ".join(_folded_attention(inventory.attention)) or "no attention"
    return f"{_FORMATS[model.dialect]}, {state}, kind {inventory.kind}, {caches} caches, {attention}"


def _cache_json(cache: Cache) -> dict[str, Any]:
    return asdict(cache) | {"shape": _numbers(cache.shape)}


def _port_json(port: Port) -> dict[str, Any]:
    return asdict(port) | {"shape": _numbers(port.shape)}


def _numbers(shape: tuple[Dimension, ...] | None) -> list[int | None] | None:
    return None if shape is None else [size if isinstance(size, int) else None for size in shape]


def _heading(word: str, plain: int, caches: int) -> str:
    return f"{word} ({plain}{f', and {caches} of caches' if caches else ''})"


def _folded_caches(caches: tuple[Cache, ...]) -> list[str]:
    groups: dict[tuple[str, ...], list[Cache]] = {}
    for cache in caches:
        alike = (cache.role, cache.kind, cache.element_type, _shape(cache.shape, cache.axes))
        groups.setdefault(alike, []).append(cache)
    return columns([(_layers(group), *alike) for alike, group in groups.items()]) if groups else []


def _layers(caches: list[Cache]) -> str:
    """``layers 0-3, 5``."""
    known = sorted({cache.layer for cache in caches if cache.layer is not None})
    if not known:
        return "no layer"
    runs: list[list[int]] = []
    for layer in known:
        if runs and layer == runs[-1][-1] + 1:
            runs[-1].append(layer)
        else:
            runs.append([layer])
    told = ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
    return f"layer {told}" if len(known) == 1 else f"layers {told}"


def _shape(shape: tuple[Dimension, ...] | None, axes: Axes | None = None) -> str:
    if shape is None:
        return "of any rank"
    names = {position: name for name, position in asdict(axes).items()} if axes is not None else {}
    sizes = ["?" if size is None else str(size) for size in shape]
    return f"[{', '.join(f'{names[axis]}={size}' if axis in names else size for axis, size in enumerate(sizes))}]"


def _folded_attention(blocks: tuple[AttentionBlock, ...]) -> list[str]:
    return [f"{count} {text}" for text, count in _counts(map(_attention, blocks)).items()]


def _attention(block: AttentionBlock) -> str:
    if block.form != "decomposed":
        return block.form
    return "decomposed, fusable" if block.fusable else f"decomposed, not fusable: {block.reason}"


def _counts(words: Iterable[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for word in words:
        found[word] = found.get(word, 0) + 1
    return found
