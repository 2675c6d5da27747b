"""``genai_config.json`` of onnxruntime-genai's encoder-decoder type ``whisper``.

Source: ``src/models/whisper.cpp`` and ``src/config.cpp`` of onnxruntime-genai 0.18, and runs.

Either the encoder returns the caches of cross attention, or the decoder reads encoder states in each step; graphpass
writes the first form. The other encoder-decoder type, ``marian``, has a decoder with recurrent states and without
caches.
"""

from __future__ import annotations

import json
from pathlib import Path

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.errors import UnsupportedError
from graphpass.ir.cache import BHSD, Cache
from graphpass.ir.inputs import TOKEN_INPUTS
from graphpass.ir.model import Model
from graphpass.ir.types import Dimension, shape_text
from graphpass.ir.values import REALS
from graphpass.targets.consumers.ort_genai import template_of
from graphpass.targets.ort.context import configuration
from graphpass.targets.ort.genai_config import require_sizes, session_options, sizes_and_tokens
from graphpass.targets.ort.providers import Device

#: Source file that feeds encoder and decoder.
WHISPER_SOURCE = "onnxruntime-genai/src/models/whisper.cpp"

#: Numbers of input frames and of encoder positions, both fixed (``whisper.h``).
FRAMES, _POSITIONS = 3000, 1500

_ROLES = ("key", "value", "cross_key", "cross_value")

_ONLY = "onnxruntime-genai feeds encoders of audio (type whisper), and of text none whose decoder has caches"


def whisper_config(
    encoder: Model, decoder: Model, source: Path | None, context: int | None, device: Device = "cpu"
) -> str:
    """Return the text of the configuration.

    Args:
        encoder: The resulting encoder, which returns the caches of cross attention.
        decoder: The resulting decoder.
        source: A file of the input, in the folder of its configurations.
        context: Number of positions; by default that in config.json.
        device: The execution provider of encoder and decoder.

    Raises:
        PreconditionError: GP396, the number of positions or of token ids is unknown.
        ReadError: GP116, a configuration of the input is not a JSON object.
        UnsupportedError: GP397, onnxruntime-genai does not support the models.
    """
    reason = why_no_audio(encoder) or why_no_whisper(decoder) or why_no_pair(encoder, decoder)
    if reason is not None:
        raise UnsupportedError("GP397", f"onnxruntime-genai does not support this model: {reason}")
    length, vocabulary = require_sizes(decoder, source, context)
    keys, values, cross_keys, cross_values = (caches[0] for caches in _caches(decoder).values())
    states = next(port for port in encoder.outputs if len(port.shape or ()) == 3)
    own, cross = keys.shape or (), cross_keys.shape or ()
    parts = {
        "encoder": {
            "filename": "encoder.onnx",
            "hidden_size": (states.shape or ())[2],
            "inputs": {"audio_features": encoder.inputs[0].name},
            "outputs": {
                "encoder_hidden_states": states.name,
                "cross_present_key_names": template_of(cross_keys.filled_by),
                "cross_present_value_names": template_of(cross_values.filled_by),
            },
        },
        "decoder": {
            "filename": "decoder.onnx",
            **session_options(device),
            "head_size": own[3],
            "num_attention_heads": cross[1],
            "num_key_value_heads": own[1],
            "num_hidden_layers": len(_caches(decoder)["key"]),
            "inputs": {
                "input_ids": TOKEN_INPUTS[0],
                "past_key_names": template_of(keys.read),
                "past_value_names": template_of(values.read),
                "cross_past_key_names": template_of(cross_keys.read),
                "cross_past_value_names": template_of(cross_values.read),
            },
            "outputs": {
                "logits": "logits",
                "present_key_names": template_of(str(keys.write)),
                "present_value_names": template_of(str(values.write)),
            },
        },
    }
    # With one buffer, onnxruntime-genai does not reorder beams (``generators.cpp``).
    search = {"max_length": length, "do_sample": False, "past_present_share_buffer": False}
    whole = {"type": "whisper", **sizes_and_tokens(source, length, vocabulary), **parts}
    return json.dumps({"model": whole, "search": search}, indent=2) + "\n"


def audio_processor(source: Path | None) -> str | None:
    """Return the text of ``audio_processor_config.json``; ``None`` if the feature extraction is unknown.

    Raises:
        ReadError: GP116, preprocessor_config.json is not a JSON object.
    """
    audio = configuration(source, "preprocessor_config.json")
    names = ("chunk_length", "hop_length", "n_fft", "feature_size")
    numbers = [audio.get(name) for name in names]
    if not all(isinstance(number, int) for number in numbers):
        return None
    chunk, hop, size, bands = numbers
    steps = {
        "audio_decoder": ("AudioDecoder", {}),
        "STFT": ("STFTNorm", {"n_fft": size, "frame_length": size, "hop_length": hop}),
        "log_mel_spectrogram": (
            "LogMelSpectrum",
            {"chunk_size": chunk, "hop_length": hop, "n_fft": size, "n_mel": bands},
        ),
    }
    sequence = [
        {"operation": {"name": name, "type": kind, **({"attrs": attributes} if attributes else {})}}
        for name, (kind, attributes) in steps.items()
    ]
    return json.dumps({"feature_extraction": {"sequence": sequence}}, indent=2) + "\n"


def why_no_audio(encoder: Model) -> str | None:
    """Return why onnxruntime-genai does not support an encoder; ``None`` if it does."""
    for port in encoder.inputs:
        shape = port.shape or ()
        if len(shape) != 3 or port.element_type not in REALS:
            return f"its encoder reads {port.name} {shape_text(port.shape)}; {_ONLY}"
        if isinstance(shape[2], int) and shape[2] != FRAMES:
            return f"its encoder reads {shape[2]} frames, and onnxruntime-genai feeds {FRAMES}"
    if len(encoder.inputs) != 1:
        return f"its encoder has {len(encoder.inputs)} inputs; {_ONLY}"
    return None


def why_no_whisper(decoder: Model) -> str | None:
    """Return why onnxruntime-genai does not support a decoder of type ``whisper``; ``None`` if it does."""
    inventory, caches = analyze_caches(decoder), _caches(decoder)
    members = [cache for group in caches.values() for cache in group]
    others = [cache.name for cache in inventory.caches if cache not in members]
    fed = {cache.read for cache in inventory.caches}
    unfed = [port.name for port in decoder.inputs if port.name not in {*fed, TOKEN_INPUTS[0]}]
    counts = {role: len(group) for role, group in caches.items()}
    if unfed:
        return f"input {unfed[0]} of its decoder is not fed; {_ONLY}"
    if others:
        return f"cache {others[0]} is not [batch, heads, positions, head_dim]"
    if len(set(counts.values())) > 1 or not members:
        return f"its layers have different caches: {', '.join(f'{count} {role}' for role, count in counts.items())}"
    if len({(cache.shape or ())[3] for cache in members}) > 1 or any(_differ(group) for group in caches.values()):
        return "its caches have heads of different sizes"
    if len({cache.element_type for cache in members}) > 1:
        return "its caches are of different types"
    if any(not _are_counted(group) for group in caches.values()):
        return "names of its caches do not count layers from 0 by one template"
    return None if any(port.name == "logits" for port in decoder.outputs) else "its decoder has no output logits"


def why_no_pair(encoder: Model, decoder: Model) -> str | None:
    """Return why an encoder does not match its decoder; ``None`` if it does.

    Args:
        encoder: The encoder; onnxruntime-genai requires caches of cross attention and hidden states as its outputs.
        decoder: The decoder, whose caches of cross attention have the types and sizes of these outputs.
    """
    outputs = {port.name: port for port in encoder.outputs}
    for role in ("cross_key", "cross_value"):
        for cache in _caches(decoder)[role]:
            port = outputs.get(cache.filled_by)
            if port is None:
                return f"its encoder does not return {cache.filled_by}: run graphpass convert"
            if port.element_type != cache.element_type or _sizes(port.shape)[1::2] != _sizes(cache.shape)[1::2]:
                return f"output {port.name} of its encoder and input {cache.read} of its decoder differ in type or size"
    states = [port for port in encoder.outputs if len(port.shape or ()) == 3]
    if len(states) != 1 or not isinstance(_sizes(states[0].shape)[2], int):
        return "its encoder does not return one tensor [batch, positions, hidden] of a fixed size"
    features = encoder.inputs[0]
    if features.element_type != states[0].element_type:
        types = f"{features.element_type} and returns {states[0].element_type}"
        return f"its encoder reads {types}; onnxruntime-genai requires equal types"
    positions = _sizes(states[0].shape)[1]
    if isinstance(positions, int) and positions != _POSITIONS:
        return f"its encoder returns {positions} positions, and onnxruntime-genai requires {_POSITIONS}"
    return None


def _caches(decoder: Model) -> dict[str, list[Cache]]:
    caches = analyze_caches(decoder).caches
    return {role: [cache for cache in caches if cache.role == role and cache.axes == BHSD] for role in _ROLES}


def _sizes(shape: tuple[Dimension, ...] | None) -> tuple[Dimension, ...]:
    return shape or ()


def _differ(caches: list[Cache]) -> bool:
    return len({_sizes(cache.shape)[1] for cache in caches}) > 1


def _are_counted(caches: list[Cache]) -> bool:
    """Return whether names differ only in the layer's number, counted from 0."""
    reads, writes = [cache.read for cache in caches], [cache.write or cache.filled_by for cache in caches]
    return all(
        name == template_of(names[0]).replace("%d", str(number))
        for names in (reads, writes)
        for number, name in enumerate(names)
    )
