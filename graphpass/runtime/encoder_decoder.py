"""Find the files of an encoder-decoder model in a folder, by optimum's names."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.errors import UsageError
from graphpass.io import load
from graphpass.ir.model import Model
from graphpass.model_files import model_folder
from graphpass.runtime.backends.encoder_decoder import EncoderDecoderModels

_EXPORT = "export the model with a task that ends in -with-past"


@dataclass(frozen=True, slots=True)
class EncoderDecoder:
    """The files of an encoder-decoder model.

    Attributes:
        encoder: Computes the encoder's hidden states.
        decoder: Computes a step from its past, and from the hidden states or their caches.
        first: Computes the first step, and the caches of the hidden states; ``None`` if ``decoder`` computes it, or if
            the encoder returns these caches.
    """

    encoder: Path
    decoder: Path
    first: Path | None

    @property
    def merged(self) -> bool:
        """Return whether one file has both decoders, as branches of an If."""
        return self.first == self.decoder


def find_encoder_decoder(path: Path) -> EncoderDecoder | None:
    """Return the files in folder ``path``, see `graphpass.model_files.model_folder`; ``None`` without an encoder.

    Raises:
        UsageError: GP225, the folder has two encoders, or no decoder for its encoder.
    """
    path = model_folder(path)
    try:
        names = {file.name for file in path.iterdir()}
    except OSError:  # `graphpass.model_files.find_model` reports it
        return None
    forms = [(prefix, suffix) for prefix, suffix in _FORMS if f"{prefix}encoder_model{suffix}" in names]
    if not forms:
        return EncoderDecoder(path / _BUILDER[0], path / _BUILDER[1], None) if names.issuperset(_BUILDER) else None
    if len(forms) > 1:
        reason = f"{path} has an encoder in ONNX and one in OpenVINO IR"
        raise UsageError("GP225", reason, "move one of the two models into a folder of its own")
    prefix, suffix = forms[0]
    encoder, first, later, merged = (path / f"{prefix}{part}{suffix}" for part in _PARTS)
    if first.is_file() and later.is_file():
        return EncoderDecoder(encoder, later, first)
    if merged.is_file():
        return EncoderDecoder(encoder, merged, merged)
    if later.is_file():
        reason = f"{path} has {later.name}, but not {first.name}, which fills the caches of cross attention"
        raise UsageError("GP225", reason, _EXPORT)
    if not first.is_file():
        raise UsageError("GP225", f"{path} has {encoder.name}, but no decoder", f"add {first.name}")
    if not analyze_caches(load(first)).caches:
        reason = f"{path} has {first.name}, which has no caches, but not {later.name}"
        raise UsageError("GP225", reason, _EXPORT)
    return EncoderDecoder(encoder, first, None)


def read_parts(files: EncoderDecoder, read: Callable[[Path], Model] = load) -> EncoderDecoderModels:
    """Read the parts of an encoder-decoder model.

    Args:
        files: The files of the parts.
        read: Reads a file.

    Returns:
        The parts; the decoder of a merged file is also the first.

    Raises:
        ReadError: As `graphpass.io.load`.
    """
    encoder, decoder = read(files.encoder), read(files.decoder)
    if files.merged:
        return EncoderDecoderModels(encoder, decoder, decoder)
    return EncoderDecoderModels(encoder, decoder, None if files.first is None else read(files.first))


def folder_of_part(file: Path) -> Path | None:
    """Return the folder of the encoder-decoder model that ``file`` belongs to, if any."""
    for names in (*([f"{prefix}{part}{suffix}" for part in _PARTS] for prefix, suffix in _FORMS), _BUILDER):
        parts = [file.with_name(name) for name in names]
        if file in parts and os.path.isfile(parts[0]) and any(map(os.path.isfile, parts[1:])):
            return file.parent
    return None


#: Names in the output of onnxruntime-genai's builder, whose encoder computes the caches of cross attention.
_BUILDER = ("encoder.onnx", "decoder.onnx")

#: Optimum's names of the encoder and its decoders.
_PARTS = ("encoder_model", "decoder_model", "decoder_with_past_model", "decoder_model_merged")

_FORMS = (("", ".onnx"), ("openvino_", ".xml"))
