"""Store weights of an ONNX model in data files of limited size."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, TypeAlias

import onnx

from graphpass.dialects.onnx.files import PROTO_LIMIT, referring
from graphpass.dialects.onnx.model import OnnxModel
from graphpass.dialects.onnx.tensors import (
    SMALL,
    ExternalData,
    all_external_data,
    is_external,
    nbytes,
    rebuilt,
    tensors,
)
from graphpass.errors import UnsupportedError, WriteError
from graphpass.storage.kernel_copy import copy_range
from graphpass.storage.scratch_file import ALIGNMENT

#: Maximum bytes of a data file: browsers load it into one ArrayBuffer, whose limit may be below 2 GiB.
SHARD = 2**31 - 2**20

_Key: TypeAlias = "str | tuple[str, int, int]"


@dataclass(frozen=True, slots=True)
class _Position:
    """Position of a weight in the data files.

    Attributes:
        shard: Index of the file.
        offset: Offset of the first byte.
        length: Number of bytes.
        source: The data; bytes if they are in the graph file.
    """

    shard: int
    offset: int
    length: int
    source: ExternalData | bytes


def count_shards(model: OnnxModel, limit: int = PROTO_LIMIT) -> int:
    """Return the number of data files that `stage_sharded` writes.

    Args:
        model: The model.
        limit: As for `stage_sharded`.

    Raises:
        ReadError, UnsupportedError: As `stage_sharded`.
    """
    return max((position.shard for position in _places(model, limit).values()), default=-1) + 1


def shard_names(file_name: str, count: int) -> list[str]:
    """Return the names of a model's data files that transformers.js expects.

    Args:
        file_name: Name of the ``.onnx`` file.
        count: Number of data files.
    """
    return [f"{file_name}_data" + (f"_{shard}" if shard else "") for shard in range(count)]


def stage_sharded(model: OnnxModel, folder: Path, file_name: str, limit: int = PROTO_LIMIT) -> None:
    """Write a model into a folder, with weights in ``NAME_data``, ``NAME_data_1`` and so on.

    Args:
        model: The model, which is not modified.
        folder: The folder.
        file_name: Name of the ``.onnx`` file.
        limit: Size in bytes above which weights are moved from the ``.onnx`` file.

    Raises:
        ReadError: GP105, external data is missing.
        UnsupportedError: GP399, a weight exceeds the size of a data file.
        WriteError: GP503, the model without its weights exceeds protobuf's limit.
        OSError: The file system reports an error.
    """
    positions = _places(model, limit)
    names = shard_names(file_name, count_shards(model, limit))
    for shard, name in enumerate(names):
        with (folder / name).open("xb") as writing:
            for position in positions.values():
                if position.shard == shard:
                    _write(position, writing)
    proto = rebuilt(model.proto, lambda tensor: _referring(tensor, positions, names))
    if (size := proto.ByteSize()) > PROTO_LIMIT:
        raise WriteError("GP503", f"{file_name} has {size} bytes without its weights; the limit is {PROTO_LIMIT}")
    (folder / file_name).write_bytes(proto.SerializeToString(deterministic=True))


def _places(model: OnnxModel, limit: int) -> dict[_Key, _Position]:
    """Assign a position to each range of data once, in the model's order.

    Returns:
        The positions by location, offset and length of external data, or by name of an embedded weight.

    Raises:
        UnsupportedError: GP399, a weight is larger than `SHARD`.
    """
    positions: dict[_Key, _Position] = {}
    shard = end = 0
    sources: list[tuple[_Key, str, ExternalData | bytes]] = [
        ((data.location, data.offset, data.length), data.tensor, data)
        for data in all_external_data(filter(is_external, tensors(model.proto)), model.path)
    ]
    if model.proto.ByteSize() > limit:
        large = (initializer for initializer in model.proto.graph.initializer if len(initializer.raw_data) > SMALL)
        sources += [(tensor.name, tensor.name, tensor.raw_data) for tensor in large]
    for key, name, source in sources:
        if key in positions:
            continue
        length = len(source) if isinstance(source, bytes) else source.length
        if length > SHARD:
            reason = f"weight {name} has {length:,} bytes, and files for browsers are limited to {SHARD:,}"
            raise UnsupportedError("GP399", reason, "store it in fewer bits: dtype=fp16, q4 or q4f16")
        offset = end + -end % ALIGNMENT
        if offset + length > SHARD:
            shard, offset = shard + 1, 0
        positions[key], end = _Position(shard, offset, length, source), offset + length
    return positions


def _write(position: _Position, writing: BinaryIO) -> None:
    writing.seek(position.offset)
    if isinstance(position.source, bytes):
        writing.write(position.source)
        return
    writing.flush()
    with position.source.file.open("rb") as reading:
        copy_range(reading.fileno(), position.source.offset, position.length, writing.fileno())


def _referring(tensor: onnx.TensorProto, positions: dict[_Key, _Position], names: list[str]) -> onnx.TensorProto | None:
    key: _Key = tensor.name
    if is_external(tensor):
        entries = {entry.key: entry.value for entry in tensor.external_data}
        key = entries["location"], int(entries.get("offset", "0")), int(entries.get("length", str(nbytes(tensor))))
    elif not tensor.raw_data:
        return None
    position = positions.get(key)
    if position is None or (isinstance(key, str) and position.source != tensor.raw_data):
        return None
    return referring(tensor, names[position.shard], position.offset, position.length)
