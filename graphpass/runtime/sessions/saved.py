"""Save the state of a session to a safetensors file, and load it.

The file has tokens, caches in the order of their slots, and adapter weights. Its metadata has the model's digest, the
settings that affect the contents of caches, and a checksum of the file's contents.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from graphpass.errors import ReadError, UsageError
from graphpass.ir.types import shape_text
from graphpass.runtime.sessions.embeddings import numbers
from graphpass.runtime.sessions.tokens import Tokens
from graphpass.storage.staging import staging

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from graphpass.ir.cache import Cache
    from graphpass.ir.model import Model
    from graphpass.runtime.sessions.inputs import Array, InputPlan

#: Keys of the metadata, and the version of the format.
_FORMAT, _MODEL, _SETTING, _CHECKSUM = "format", "model", "setting/", "sha256"
_VERSION = "graphpass state 2"

_TOKENS, _ORIGINS, _CACHES, _EMBEDDINGS = "tokens", "origins", "caches/", "embeddings"

_AGAIN = "prefill again, and save again"


@dataclass(frozen=True, slots=True)
class SavedOrigin:
    """The model and the settings for which a saved state is valid.

    Attributes:
        model: Digest of the model's structure.
        settings: Settings of the runtime by name that affect the contents of caches.
    """

    model: str
    settings: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class SavedState:
    """The state from which a session continues.

    Attributes:
        tokens: Contents of the slots.
        origins: `Slots.origins`, int64 [2, length].
        caches: Caches and adapter weights by name; entry i of a growing cache belongs to slot i.
        embeddings: f32 [batch, length, hidden] for models with input ``inputs_embeds``; their hashes are the ids.
    """

    tokens: Tokens
    origins: NDArray[np.int64]
    caches: Mapping[str, Array] = field(repr=False)
    embeddings: NDArray[np.float32] | None = None


def model_digest(model: Model) -> str:
    """Return a digest of ``model`` that is equal each time the model is read."""
    from graphpass.dialects.openvino.model import OpenVINOModel

    return model.digest(shapes=False) if isinstance(model, OpenVINOModel) else model.digest()


def write_state(path: Path, state: SavedState, origin: SavedOrigin) -> None:
    """Write a state to a file atomically.

    Args:
        path: The file, replaced if it exists; its folder is created if missing.
        state: Tokens and caches.
        origin: The model and settings, which `read_state` checks.

    Raises:
        WriteError: GP501, the file system reports an error.
    """  # noqa: DOC501 - staging raises WriteError
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    tensors = {
        _TOKENS: _table(state.tokens),
        _ORIGINS: state.origins,
        **({} if state.embeddings is None else {_EMBEDDINGS: state.embeddings}),
        **{_CACHES + name: value for name, value in state.caches.items()},
    }
    settings = {_SETTING + name: value for name, value in origin.settings.items()}
    metadata = {_FORMAT: _VERSION, _MODEL: origin.model, **settings}
    with staging(path.parent) as folder:
        # safetensors writes the buffer of an array and ignores its strides.
        dense = {name: np.ascontiguousarray(value) for name, value in tensors.items()}
        metadata[_CHECKSUM] = _checksum(metadata, dense)
        try:
            save_file(dense, folder / path.name, metadata)
        except SafetensorError as error:
            raise OSError(str(error)) from error


def _checksum(metadata: Mapping[str, str], tensors: Mapping[str, Array]) -> str:
    """Return the SHA-256 of tensors and metadata, without the checksum's entry."""
    hasher = hashlib.sha256(repr(sorted((key, metadata[key]) for key in metadata if key != _CHECKSUM)).encode())
    for name in sorted(tensors):
        value = np.ascontiguousarray(tensors[name])
        hasher.update(repr((name, value.dtype.str, value.shape)).encode())
        hasher.update(value.reshape(-1).view(np.uint8).data)
    return hasher.hexdigest()


def _table(tokens: Tokens) -> NDArray[np.int64]:
    positions = tokens.positions.reshape(-1, *tokens.ids.shape)
    return np.concatenate([tokens.ids[None], tokens.mask[None], positions])


def read_state(
    path: Path, growing: Sequence[Cache], others: Sequence[Cache], origin: SavedOrigin, inputs: InputPlan
) -> SavedState:
    """Read a state, and check that it is valid for a session.

    Args:
        path: A file from `write_state`.
        growing: The session's caches with one entry per slot.
        others: Caches of fixed size, and adapter weights.
        origin: The session's model and settings.
        inputs: The session's inputs.

    Returns:
        Tokens and caches.

    Raises:
        ReadError: GP117, the file is missing, damaged or not a saved state.
        UsageError: GP252, the state was saved by a session of another model, or with other settings.
    """
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise ReadError("GP117", f"found no file {path}", "check the path")
    try:
        with safe_open(path, framework="np") as file:
            metadata = file.metadata() or {}
            _check_origin(path, metadata, origin)
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no mapping
    except OSError as error:
        raise ReadError("GP117", f"cannot read {path}: {error}", "check the path") from error
    except (SafetensorError, TypeError) as error:
        raise ReadError("GP117", f"{path} is damaged, or not a saved state: {error}", _AGAIN) from error
    state = _checked(path, tensors, growing, others, inputs)
    if metadata.get(_CHECKSUM) != _checksum(metadata, tensors):
        raise ReadError("GP117", f"{path} is damaged: its contents do not match its checksum", _AGAIN)
    return state


def _check_origin(path: Path, metadata: Mapping[str, str], origin: SavedOrigin) -> None:
    if metadata.get(_FORMAT) != _VERSION:
        raise ReadError("GP117", f"{path} is not a state that this version of graphpass saves", _AGAIN)
    if metadata.get(_MODEL) != origin.model:
        raise UsageError("GP252", f"{path} was saved by a session of another model", "open the model of the state")
    settings = {key.removeprefix(_SETTING): value for key, value in metadata.items() if key.startswith(_SETTING)}
    for name in sorted({*settings, *origin.settings}):
        before, now = settings.get(name), origin.settings.get(name)
        if before != now:
            message = f"{path} was saved with {name}={before}, and this session has {now}"
            raise UsageError("GP252", message, "open the session with the same settings")


def _checked(
    path: Path, tensors: Mapping[str, Array], growing: Sequence[Cache], others: Sequence[Cache], inputs: InputPlan
) -> SavedState:
    caches = (*growing, *others)
    wanted = {_TOKENS, _ORIGINS, *(_CACHES + cache.name for cache in caches)}
    wanted |= {_EMBEDDINGS} if inputs.takes_embeddings else set()
    if set(tensors) != wanted:
        name = min(set(tensors) ^ wanted)
        raise ReadError("GP117", f"{path} is damaged: {name} is {'missing' if name in wanted else 'unknown'}", _AGAIN)
    tokens, origins = tensors[_TOKENS], tensors[_ORIGINS]
    batch, length = tokens.shape[1:] if tokens.ndim == 3 else (0, 0)
    _check_shape(path, _TOKENS, tokens, (2 + math.prod(inputs.axes), batch, length))
    _check_shape(path, _ORIGINS, origins, (2, length))
    for cache in caches:
        value = tensors[_CACHES + cache.name]
        known = {cache.axes.batch: batch, cache.axes.sequence: length if cache in growing else None}
        sizes = cache.shape or (None,) * value.ndim
        _check_shape(path, cache.name, value, tuple(known.get(axis, size) for axis, size in enumerate(sizes)))
    kept = {cache.name: tensors[_CACHES + cache.name] for cache in caches}
    ids, mask, *positions = tokens
    restored = Tokens(ids, mask, np.reshape(positions, (*inputs.axes, batch, length)))
    if not inputs.takes_embeddings:
        return SavedState(restored, origins, kept)
    rows = tensors[_EMBEDDINGS]
    _check_shape(path, _EMBEDDINGS, rows, (batch, length, inputs.hidden))
    if (numbers(rows) != ids).any():
        raise ReadError("GP117", f"{path} is damaged: {_EMBEDDINGS} do not match the hashes in {_TOKENS}", _AGAIN)
    return SavedState(restored, origins, kept, rows)


def _check_shape(path: Path, name: str, value: Array, shape: tuple[int | str | None, ...]) -> None:
    if len(value.shape) != len(shape) or any(
        isinstance(wanted, int) and wanted != size for wanted, size in zip(shape, value.shape, strict=True)
    ):
        raise ReadError("GP117", f"{path} is damaged: {name} is {list(value.shape)}, not {shape_text(shape)}", _AGAIN)
