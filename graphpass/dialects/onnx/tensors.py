"""Find the tensors of an ONNX model, and the files with their data."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path, PurePosixPath
from typing import Any, TypeAlias

import numpy
import onnx

from graphpass.errors import ReadError
from graphpass.ir.element_types import ELEMENT_TYPES
from graphpass.ir.types import Dimension
from graphpass.storage.scratch_file import ScratchFile
from graphpass.storage.weight_file import GRANT_READ, lies_with

Holder: TypeAlias = onnx.GraphProto | onnx.FunctionProto
"""A graph, body or function."""

#: Tensors up to this many bytes count as structure, larger ones as weights.
SMALL = 1024

#: Size in bytes above which tensors are mapped into memory, and types that can be mapped without conversion.
_MANY = 2**20
_MAPPED: dict[int, str] = {onnx.TensorProto.FLOAT: "<f4", onnx.TensorProto.FLOAT16: "<f2"}

_SAMPLE = 64
_EXPORT_AGAIN = "export or copy the model again"
_TYPE = onnx.TensorProto

_BY_CODE = {element_type.code: element_type for element_type in ELEMENT_TYPES.values()}


def shape_of(tensor: onnx.TypeProto.Tensor) -> tuple[Dimension, ...] | None:
    """Return the shape of a tensor's type; ``None`` if the rank is unknown."""
    if not tensor.HasField("shape"):
        return None
    return tuple(
        dimension.dim_value if dimension.HasField("dim_value") else dimension.dim_param or None
        for dimension in tensor.shape.dim
    )


def element_type(code: int) -> str:
    """Return OpenVINO's short name of ONNX element type ``code``; ``"dynamic"`` if unknown."""
    return _BY_CODE[code].name if code in _BY_CODE else "dynamic"


def element_code(name: str) -> int:
    """Return ONNX's code for the element type ``name``, the inverse of `element_type`."""
    return ELEMENT_TYPES[name].code


def nbytes(tensor: onnx.TensorProto) -> int:
    """Return the bytes of a tensor by shape and type; a string counts 8 bytes."""
    bits = _BY_CODE[tensor.data_type].bits if tensor.data_type in _BY_CODE else 8
    size: int = (prod(tensor.dims) * bits + 7) // 8
    return size


def check_tensor(tensor: onnx.TensorProto) -> None:
    """Check that an inline tensor's data matches its shape and type.

    Raises:
        ReadError: GP112, the size of the data differs or is unknown.
    """
    count = prod(tensor.dims)
    bits = _BY_CODE[tensor.data_type].bits if tensor.data_type in _BY_CODE else 0
    described = f"tensor {tensor.name!r} of type {element_type(tensor.data_type)} and shape {list(tensor.dims)}"
    if tensor.HasField("segment") or tensor.data_type == _TYPE.UNDEFINED or any(size < 0 for size in tensor.dims):
        raise ReadError("GP112", f"{described} is in segments, of no type or of negative size", _EXPORT_AGAIN)
    if is_external(tensor) or not bits:
        return
    if tensor.HasField("raw_data"):
        size, needed, unit = len(tensor.raw_data), nbytes(tensor), "bytes"
    else:
        values = [value for field, value in tensor.ListFields() if field.name.endswith("_data")]
        is_complex = tensor.data_type in {_TYPE.COMPLEX64, _TYPE.COMPLEX128}
        needed = nbytes(tensor) if bits < 8 else 2 * count if is_complex else count
        size, unit = sum(len(value) for value in values), "values"
    if size != needed:
        raise ReadError("GP112", f"{described} requires {needed} {unit}, got {size}", _EXPORT_AGAIN)


def is_external(tensor: onnx.TensorProto) -> bool:
    """Return whether the tensor's data is in a data file."""
    return tensor.data_location == onnx.TensorProto.EXTERNAL


def is_small_inline(tensor: onnx.TensorProto, limit: int) -> bool:
    """Return whether the tensor is inline and small.

    Args:
        tensor: An initializer, or a tensor in an attribute.
        limit: Largest number of elements of a small tensor.
    """
    return not is_external(tensor) and prod(tensor.dims) <= limit


def graphs(proto: onnx.ModelProto) -> Iterator[Holder]:
    """Yield the main graph, functions, and all bodies."""
    training = [graph for info in proto.training_info for graph in (info.initialization, info.algorithm)]
    pending: list[Any] = [*training, *proto.functions, proto.graph]
    while pending:
        holder = pending.pop()
        yield holder
        for attribute in _attributes(holder):
            if attribute.HasField("g"):
                pending.append(attribute.g)
            pending.extend(attribute.graphs)


def tensors(proto: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """Yield initializers, and tensors in attributes, of all graphs, bodies and functions."""
    for holder in graphs(proto):
        if isinstance(holder, onnx.GraphProto):
            yield from holder.initializer
            yield from _dense(holder.sparse_initializer)
        for attribute in _attributes(holder):
            if attribute.HasField("t"):
                yield attribute.t
            if attribute.HasField("sparse_tensor"):
                yield from _dense([attribute.sparse_tensor])
            yield from attribute.tensors
            yield from _dense(attribute.sparse_tensors)


def rebuilt(proto: onnx.ModelProto, change: Callable[[onnx.TensorProto], onnx.TensorProto | None]) -> onnx.ModelProto:
    """Return a copy of a model with some tensors replaced.

    Replaced initializers of the main graph are not copied.

    Args:
        proto: The model, which is not modified.
        change: Function from a tensor to its replacement; ``None`` keeps the tensor.
    """
    copy = onnx.ModelProto()
    merge(proto, copy, without="graph")
    merge(proto.graph, copy.graph, without="initializer")
    for tensor in tensors(copy):
        replacement = change(tensor)
        if replacement is not None:
            tensor.CopyFrom(replacement)
    for tensor in proto.graph.initializer:
        copy.graph.initializer.append(change(tensor) or tensor)
    return copy


@dataclass(frozen=True, slots=True)
class ExternalData:
    """The file range with the data of one tensor.

    Attributes:
        tensor: Name of the tensor.
        location: The file, relative to the model's folder.
        file: The file, with links resolved.
        offset: Offset of the first byte.
        length: Number of bytes.
    """

    tensor: str
    location: str
    file: Path
    offset: int
    length: int


def external_data(tensor: onnx.TensorProto, model_file: Path | None) -> ExternalData:
    """Return the file range of an external tensor.

    Args:
        tensor: The tensor, whose data type and shape determine the expected length.
        model_file: The ``.onnx`` file, whose folder contains the data files; ``None`` for a model in memory.

    Raises:
        ReadError: GP105, the reference is invalid, the file is missing or not readable, or it is outside the model's
            folder.
    """
    return next(all_external_data([tensor], model_file))


def all_external_data(tensors: Iterable[onnx.TensorProto], model_file: Path | None) -> Iterator[ExternalData]:
    """Yield the file ranges of external tensors; each file is checked once.

    Args:
        tensors: External tensors of one model; ranges have the same order.
        model_file: As for `external_data`.

    Raises:
        ReadError: As `external_data`.
    """  # noqa: DOC501 - _no_data is a ReadError
    files: dict[str, tuple[Path, int]] = {}
    for tensor in tensors:
        entries = {entry.key: entry.value for entry in tensor.external_data}
        location = entries.get("location", "")
        if location not in files:
            files[location] = _data_file(tensor, location, model_file)
        file, size = files[location]
        try:
            offset = int(entries.get("offset", "0"))
            length = int(entries.get("length", str(nbytes(tensor))))
        except ValueError as error:
            raise _no_data(tensor, f"data in {file} at an offset or length that is not a number") from error
        if length != nbytes(tensor) and tensor.data_type in _BY_CODE:
            needed = f"its type and shape {list(tensor.dims)} require {nbytes(tensor)}"
            raise _no_data(tensor, f"{length} bytes of data in {file}, but {needed}", _EXPORT_AGAIN)
        if offset < 0 or length < 0 or offset + length > size:
            reason = f"bytes {offset} to {offset + length} of {file}, which has {size}"
            raise _no_data(tensor, reason, "the file is incomplete, or belongs to another model")
        yield ExternalData(tensor.name, location, file, offset, length)


def mapped(tensor: onnx.TensorProto, model_file: Path | None) -> numpy.ndarray | None:
    """Map the elements of a large external tensor into memory.

    Args:
        tensor: Any tensor of the model.
        model_file: As for `external_data`.

    Returns:
        The read-only elements in the tensor's shape; ``None`` unless external, in f16 or f32, and above 1 MiB.

    Raises:
        ReadError: As `external_data`.
    """
    kind = _MAPPED.get(tensor.data_type)
    if kind is None or not is_external(tensor) or nbytes(tensor) <= _MANY:
        return None
    data = external_data(tensor, model_file)
    return numpy.memmap(data.file, kind, "r", data.offset, tuple(tensor.dims))


def _data_file(tensor: onnx.TensorProto, location: str, model_file: Path | None) -> tuple[Path, int]:
    """Return the file at ``location``, with links resolved, and its size in bytes.

    Raises:
        ReadError: GP105, the file is missing, not readable, or outside the model's folder.
    """  # noqa: DOC501 - _no_data is a ReadError
    if (made := ScratchFile.find(location)) is not None:
        return made, made.stat().st_size
    if model_file is None:
        raise _no_data(tensor, f"data in {location!r}, but the model has no folder")
    # Backslashes separate folders on Windows, where a location must refer to the same file.
    parts = PurePosixPath(location.replace("\\", "/")).parts
    if not parts or parts[0] == "/" or ".." in parts or ":" in parts[0]:
        raise _no_data(tensor, f"data in {location!r}, which is not a relative path inside the folder of {model_file}")
    try:
        file = (model_file.parent / location).resolve()
    except (OSError, RuntimeError, ValueError) as error:  # a cycle of links before Python 3.13, or a NUL character
        raise _no_data(tensor, f"data in {location!r}, which is not a path: {error}") from error
    if not lies_with(file, model_file):
        raise _no_data(tensor, f"data in {location!r}, a link to {file}, outside the folder of {model_file}")
    if not os.path.isfile(file):  # also if permission is missing
        raise _no_data(tensor, f"data in {model_file.parent / location}, which is missing", "copy it beside the model")
    if not os.access(file, os.R_OK):
        raise _no_data(tensor, f"data in {file}, which cannot be read: {os.strerror(errno.EACCES)}", GRANT_READ)
    return file, file.stat().st_size


def external_files(proto: onnx.ModelProto, model_file: Path | None) -> dict[str, Path]:
    """Return data files by location, in the model's order.

    Args:
        proto: The model.
        model_file: As for `external_data`.

    Raises:
        ReadError: As `external_data`.
    """
    files = all_external_data(filter(is_external, tensors(proto)), model_file)
    return {data.location: data.file for data in files}


def embedded(tensor: onnx.TensorProto, model_file: Path | None) -> onnx.TensorProto:
    """Return the tensor with inline data, read from its file if external.

    ``onnx`` rejects links to data files, which download caches and shared results contain.

    Args:
        tensor: Any tensor of the model; an inline one is returned unchanged.
        model_file: As for `external_data`.

    Raises:
        ReadError: GP105, external data is missing.
    """
    if not is_external(tensor):
        return tensor
    data = external_data(tensor, model_file)
    with data.file.open("rb") as stream:
        stream.seek(data.offset)
        content = stream.read(data.length)
    return onnx.TensorProto(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims, raw_data=content)


def sample(tensor: onnx.TensorProto, model_file: Path | None) -> bytes:
    """Return the first and last 64 bytes of a tensor, or values of typed fields.

    Args:
        tensor: Any tensor of the model.
        model_file: As for `external_data`.

    Raises:
        ReadError: GP105, external data is missing.
    """
    if is_external(tensor):
        data = external_data(tensor, model_file)
        with data.file.open("rb") as stream:
            stream.seek(data.offset)
            head = stream.read(min(_SAMPLE, data.length))
            stream.seek(data.offset + max(0, data.length - _SAMPLE))
            return head + stream.read(min(_SAMPLE, data.length))
    if tensor.HasField("raw_data"):
        raw = tensor.raw_data
        return raw[:_SAMPLE] + raw[-_SAMPLE:]
    fields = [value for field, value in tensor.ListFields() if field.name.endswith("_data")]
    return repr([(list(values[:_SAMPLE]), list(values[-_SAMPLE:])) for values in fields]).encode()


def _attributes(holder: Any) -> Iterator[onnx.AttributeProto]:
    if isinstance(holder, onnx.FunctionProto):
        yield from holder.attribute_proto
    for node in holder.node:
        yield from node.attribute


def _no_data(tensor: onnx.TensorProto, reason: str, hint: str | None = None) -> ReadError:
    return ReadError("GP105", f"tensor {tensor.name!r} has its {reason}", hint)


def _dense(sparse: Any) -> Iterator[onnx.TensorProto]:
    for tensor in sparse:
        yield tensor.values
        yield tensor.indices


def merge(source: Any, target: Any, without: str) -> None:
    """Copy all fields of a message except one into another.

    Args:
        source: The message to copy.
        target: A message of the same type; repeated fields are extended.
        without: Name of the omitted field.
    """
    for field, value in source.ListFields():
        if field.name == without:
            continue
        if hasattr(value, "MergeFrom"):  # a message or a repeated field
            getattr(target, field.name).MergeFrom(value)
        else:
            setattr(target, field.name, value)
