"""Write an ONNX model: the graph file and its external data."""

from __future__ import annotations

import errno
import filecmp
import os
from collections.abc import Collection
from pathlib import Path
from typing import BinaryIO

import onnx

from graphpass.dialects.onnx.tensors import SMALL, external_files, is_external, rebuilt
from graphpass.errors import WriteError
from graphpass.storage.kernel_copy import copy_file
from graphpass.storage.scratch_file import ALIGNMENT

#: Protobuf's limit on the size of a message, in bytes.
PROTO_LIMIT = 2**31 - 1


def stage_onnx(
    proto: onnx.ModelProto,
    source: Path | None,
    folder: Path,
    file_name: str,
    *,
    link: bool = False,
    limit: int = PROTO_LIMIT,
) -> None:
    """Write a model and its external data into an empty folder.

    Args:
        proto: The model, which is not modified.
        source: The file that the model was read from.
        folder: The folder.
        file_name: Name of the ``.onnx`` file.
        link: Whether data files may be hard links to the source's files.
        limit: Size in bytes above which large tensors are moved from the ``.onnx`` file to a new data file.

    Raises:
        ReadError: GP105, external data is missing.
        WriteError: GP503, the model without its large tensors still exceeds the limit.
        OSError: The file system reports an error.
    """
    files = external_files(proto, source)
    for location, file in files.items():
        target = folder / location
        target.parent.mkdir(parents=True, exist_ok=True)
        _copy(file, target, link=link)
    if proto.ByteSize() > limit:
        proto = _without_weights(proto, folder, _free_name(file_name, files))
        if (size := proto.ByteSize()) > limit:
            raise WriteError("GP503", f"{file_name} has {size} bytes without its weights; the limit is {limit}")
    (folder / file_name).write_bytes(proto.SerializeToString(deterministic=True))


def _without_weights(proto: onnx.ModelProto, folder: Path, name: str) -> onnx.ModelProto:
    with (folder / name).open("xb") as stream:
        return rebuilt(proto, lambda tensor: _moved(tensor, name, stream))


def _moved(tensor: onnx.TensorProto, location: str, stream: BinaryIO) -> onnx.TensorProto | None:
    """Append a tensor's data to ``stream``.

    Returns:
        A tensor that refers to the data; ``None`` if it is external or small and stays in the model.
    """
    if is_external(tensor) or not tensor.HasField("raw_data"):
        return None
    raw = tensor.raw_data
    if len(raw) <= SMALL:
        return None
    stream.write(bytes(-stream.tell() % ALIGNMENT))
    moved = referring(tensor, location, stream.tell(), len(raw))
    stream.write(raw)
    return moved


def referring(tensor: onnx.TensorProto, location: str, offset: int, length: int) -> onnx.TensorProto:
    """Return a tensor without data that refers to a range of a data file.

    Args:
        tensor: The tensor whose name, type, shape and metadata are copied.
        location: The data file, relative to the model's folder.
        offset: Offset of the first byte in the data file.
        length: Number of bytes.
    """
    made = onnx.TensorProto(
        name=tensor.name,
        data_type=tensor.data_type,
        dims=tensor.dims,
        doc_string=tensor.doc_string,
        data_location=onnx.TensorProto.EXTERNAL,
        metadata_props=tensor.metadata_props,
    )
    for key, value in (("location", location), ("offset", str(offset)), ("length", str(length))):
        made.external_data.add(key=key, value=value)
    return made


def _free_name(file_name: str, taken: Collection[str]) -> str:
    name, number = f"{file_name}.data", 0
    while name in taken:
        number += 1
        name = f"{file_name}.{number}.data"
    return name


def _copy(file: Path, target: Path, *, link: bool) -> None:
    if link:
        try:
            os.link(file, target)
        except OSError:  # on another file system, or without support for links
            pass
        else:
            return
    if not target.exists():
        copy_file(file, target)
    elif not target.samefile(file) and not filecmp.cmp(file, target, shallow=False):
        raise FileExistsError(errno.EEXIST, "a data file with this name and other content exists", str(target))
