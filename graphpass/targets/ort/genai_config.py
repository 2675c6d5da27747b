"""``genai_config.json`` of onnxruntime-genai's decoders, of generic type ``decoder`` if they read token ids.

Source: ``src/config.cpp`` of onnxruntime-genai 0.18, and runs. The configuration states names, sizes and the shared
buffer. For decoders of embeddings see `graphpass.targets.ort.genai_parts`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.errors import PreconditionError, UnsupportedError
from graphpass.ir.cache import BHSD, Cache
from graphpass.ir.inputs import EMBEDDINGS, TARGET_STATES, TOKEN_INPUTS, token_input
from graphpass.ir.model import Model
from graphpass.ir.values import INTEGERS, fixed_size
from graphpass.targets.consumers.ort_genai import template_of
from graphpass.targets.ort.context import configuration, context_length
from graphpass.targets.ort.genai_draft import draft_section
from graphpass.targets.ort.genai_parts import find_parts, parts_sections, section_of, stages, why_no_parts
from graphpass.targets.ort.genai_states import state_entries
from graphpass.targets.ort.providers import Device

#: Inputs that onnxruntime-genai feeds to a decoder, besides caches.
_FED = (*TOKEN_INPUTS, TARGET_STATES, "attention_mask", "position_ids")

#: Source file with the rules of the configuration.
CONFIG_SOURCE = "onnxruntime-genai/src/config.cpp"


def genai_config(
    model: Model, source: Path | None, context: int | None, device: Device = "cpu", draft: Path | None = None
) -> str:
    """Return the text of the configuration.

    Args:
        model: The result.
        source: A file of the input, in the folder of its configurations.
        context: Number of positions; by default that in config.json.
        device: The execution provider; the CPU provider runs operators that it does not support.
        draft: Folder of a draft model.

    Raises:
        PreconditionError: GP396, the number of positions or of token ids is unknown.
        ReadError: GP116, a configuration of the input is not a JSON object.
        UnsupportedError: GP397, onnxruntime-genai's generic decoder does not support the caches, inputs or draft.
    """
    length, vocabulary = require_sizes(model, source, context)
    if (reason := why_no_generic_decoder(model)) is not None:
        raise UnsupportedError("GP397", f"onnxruntime-genai's generic decoder does not support this model: {reason}")
    keys, values = _keys_and_values(model)
    parts = model.analysis(find_parts) if EMBEDDINGS in model.graph.parameters else None
    own: dict[str, Any] = {"filename": "model.onnx"} if parts is None else stages(model, parts)
    width, hidden, more = state_entries(model)
    shape = keys[0].value_shape or ()
    states = {role: caches[0] for role, caches in _states(model).items() if caches}
    decoder: dict[str, Any] = {
        **width,
        **own,
        **session_options(device),
        "head_size": shape[3],
        "num_key_value_heads": shape[1],
        "num_hidden_layers": len(keys),
        "inputs": {
            **{name: name for name in _FED if name in model.graph.parameters},
            **own.get("inputs", {}),
            "past_key_names": template_of(keys[0].read),
            "past_value_names": template_of(values[0].read),
            **{f"past_{role}_names": template_of(cache.read) for role, cache in states.items()},
        },
        "outputs": {
            "logits": "logits",
            **hidden,
            "present_key_names": template_of(str(keys[0].write)),
            "present_value_names": template_of(str(values[0].write)),
            **{f"present_{role}_names": template_of(str(cache.write)) for role, cache in states.items()},
        },
    }
    if states and "recurrent" not in states:
        kinds = _kinds_of_layers(model)
        decoder |= {"num_hidden_layers": len(kinds), "layer_types": [kinds[layer] for layer in range(len(kinds))]}
    search = {"max_length": length, "do_sample": False, "past_present_share_buffer": shares_buffers(model)}
    sections = {"type": "decoder"} if parts is None else parts_sections(model, parts, source)
    whole = {**sections, **sizes_and_tokens(source, length, vocabulary), "decoder": decoder, **more}
    if draft is not None:
        whole["draft"] = draft_section(draft, whole)
    return json.dumps({"model": whole, "search": search}, indent=2) + "\n"


def session_options(device: Device) -> dict[str, Any]:
    """Return the entry of a decoder that selects an execution provider."""
    return {} if device == "cpu" else {"session_options": {"provider_options": [{device: {}}]}}


def sizes_and_tokens(source: Path | None, length: int, vocabulary: int) -> dict[str, Any]:
    """Return the entries with the number of positions and the special tokens.

    Args:
        source: A file of the input, in the folder of its configurations.
        length: Number of positions.
        vocabulary: Number of token ids.

    Raises:
        ReadError: GP116, a configuration of the input is not a JSON object.
    """
    files = section_of(source), configuration(source), configuration(source, "generation_config.json")
    values = {name: value for file in files for name, value in file.items() if value is not None}
    tokens = {name: values[name] for name in ("bos_token_id", "eos_token_id") if values.get(name) is not None}
    ends = tokens.get("eos_token_id", [])
    last = ends[0] if isinstance(ends, list) and ends else ends
    # onnxruntime-genai trims padding at the end of a prompt; by default, token 0 is padding.
    pad = values.get("pad_token_id")
    if pad is None and isinstance(last, int):
        pad = last
    padding = {} if pad is None else {"pad_token_id": pad}
    return {"vocab_size": vocabulary, "context_length": length, **tokens, **padding}


def shares_buffers(model: Model) -> bool:
    """Return whether only GroupQueryAttention reads each past, so that presents may overwrite pasts.

    A hybrid would also share buffers of windows and recurrent states, which nodes may read after the present is
    written.
    """
    graph, inventory = model.graph, analyze_caches(model)
    reads = [graph.reads[cache.read].outputs[0] for cache in inventory.of_kind("kv")]
    if inventory.kind != "kv":
        return False
    return bool(reads) and all({use.node.op for use in graph.uses(read)} == {"GroupQueryAttention"} for read in reads)


def require_sizes(model: Model, source: Path | None, context: int | None) -> tuple[int, int]:
    """Return the number of positions and of token ids.

    Args:
        model: The decoder, whose logits have one element for each token id; if this size is dynamic, it is read from
            config.json.
        source: A file of the input, in the folder of its configurations.
        context: Number of positions; ``None`` for that in config.json.

    Raises:
        PreconditionError: GP396, a number is unknown.
        ReadError: GP116, config.json is not a JSON object.
    """
    length = context or context_length(source)
    logits = next((port for port in model.outputs if port.name == "logits"), None)
    size = logits.shape[-1] if logits is not None and logits.shape else None
    vocabulary = size if isinstance(size, int) else configuration(source).get("vocab_size")
    if length is None or not isinstance(vocabulary, int):
        missing = "number of positions" if length is None else "size of the vocabulary"
        reason = f"the {missing} is not known, and genai_config.json needs it"
        raise PreconditionError("GP396", reason, "set the positions: --target 'ort-genai{context=N}'")
    return length, vocabulary


def _keys_and_values(model: Model) -> tuple[list[Cache], list[Cache]]:
    caches = analyze_caches(model).caches
    keys, values = ([cache for cache in caches if cache.role == role] for role in ("key", "value"))
    return keys, values


def _states(model: Model) -> dict[str, list[Cache]]:
    """Return windows and recurrent states, by role."""
    caches = [cache for cache in analyze_caches(model).of_kind("linear") if cache.axes.batch == 0]
    return {role: [cache for cache in caches if cache.role == role] for role in ("conv", "recurrent")}


def _kinds_of_layers(model: Model) -> dict[int | None, str]:
    """Return the entry of ``layer_types`` for each layer, by its number."""
    keys, _ = _keys_and_values(model)
    windows = _states(model)["conv"]
    return dict.fromkeys((key.index for key in keys), "full_attention") | dict.fromkeys(
        (window.index for window in windows), "conv"
    )


def are_caches_named(model: Model) -> bool:
    """Return whether past and present of each role have one template with the layer's number."""
    keys, values = _keys_and_values(model)
    states = _states(model)
    groups = [keys, values, *states.values()]
    templates = [{template_of(name(cache)) for cache in group} for group in groups if group for name in _NAMES]
    if any(len(names) > 1 for names in templates) or len(set().union(*templates)) < len(templates):
        return False
    # Layers of hybrids without keys leave out numbers.
    layers = set(range(len(keys)))
    return any(states.values()) or all({cache.index for cache in group} == layers for group in (keys, values))


def _unfed(model: Model) -> list[str]:
    """Return the inputs that onnxruntime-genai does not feed."""
    read = {cache.read for cache in analyze_caches(model).caches}
    return [port.name for port in model.inputs if port.name not in read and port.name not in _FED]


def unread_inputs(model: Model) -> tuple[str, ...]:
    """Return the integer inputs that neither an operator reads nor onnxruntime-genai feeds.

    Args:
        model: An ONNX model.
    """
    graph = model.graph
    unread = (name for name in _unfed(model) if not graph.uses(graph.parameters[name]))
    return tuple(name for name in unread if graph.parameters[name].element_type in INTEGERS)


def why_no_generic_decoder(model: Model) -> str | None:
    """Return why onnxruntime-genai's generic decoder does not support ``model``; ``None`` if it does."""
    inventory = analyze_caches(model)
    keys, values = _keys_and_values(model)
    states = _states(model)
    taken = {cache.name for cache in (*keys, *values) if cache.kind == "kv" and cache.axes == BHSD}
    taken |= {cache.name for caches in states.values() for cache in caches}
    others = [cache.name for cache in inventory.caches if cache.name not in taken]
    unfed = _unfed(model)
    windows, recurrent = ({cache.layer for cache in states[role]} for role in ("conv", "recurrent"))
    if others:
        return f"cache {others[0]} does not grow as [batch, heads, positions, head_dim]: use target ort"
    if recurrent and windows != recurrent:
        counts = f"{len(windows)} layers have windows and {len(recurrent)} have recurrent states"
        return f"{counts}; expected both, or windows: use target ort"
    if not keys or len(keys) != len(values):
        return f"it has {len(keys)} caches of keys and {len(values)} of values"
    if (reason := next(_unlike(keys, values), None)) is not None:
        return reason
    if len({cache.element_type for cache in (*keys, *values)}) > 1:
        return "its caches are of different types"
    if (reason := next(_crowded(states), None)) is not None:
        return reason
    if not are_caches_named(model):
        return "the names of its caches do not follow one template with the layer's number: run rename-caches"
    if windows and not recurrent and set(kinds := _kinds_of_layers(model)) != set(range(len(keys) + len(windows))):
        return f"its caches are numbered {', '.join(map(str, kinds))}; expected caches of one kind in each layer"
    if unfed:
        return f"its input {unfed[0]} is not fed"
    if EMBEDDINGS in model.graph.parameters and (reason := why_no_parts(model)) is not None:
        return reason
    tokens = token_input(model.graph)
    size = None if tokens is None else fixed_size(tokens, 1)
    if tokens is not None and size is not None:
        return f"its input {tokens.name} is of fixed length {size}, and prompts are fed at once"
    return None if any(port.name == "logits" for port in model.outputs) else "it has no output logits"


def _crowded(states: dict[str, list[Cache]]) -> Iterator[str]:
    """Yield the reason for each number that several states of one role have."""
    for role, caches in states.items():
        counts = Counter(cache.index for cache in caches if cache.index is not None)
        for index, count in counts.items():
            if count > 1:
                yield f"{count} caches of role {role} have the number {index}, expected one in a layer: use target ort"


def _unlike(keys: list[Cache], values: list[Cache]) -> Iterator[str]:
    """Yield the reason for each layer whose keys and values have different heads.

    The runtime reads the shape of both from the input of the keys, so that layers may differ
    (``DefaultKeyValueCache`` in ``src/models/kv_cache.cpp`` of onnxruntime-genai 0.18).
    """
    for key, value in zip(keys, values, strict=True):
        (heads, size), (value_heads, value_size) = ((cache.shape or (None,) * 4)[1::2] for cache in (key, value))
        if (heads, size) != (value_heads, value_size):
            words = f"{heads} heads of {size}, and its values {value_heads} of {value_size}"
            yield f"cache {key.name} has {words}, but both are allocated alike: use target ort"


def _read_name(cache: Cache) -> str:
    return cache.read


def _write_name(cache: Cache) -> str:
    return cache.write or ""


_NAMES = (_read_name, _write_name)
