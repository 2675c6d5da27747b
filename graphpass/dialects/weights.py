"""Find the weights of models without reading them."""

from __future__ import annotations

import functools
import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy
import onnx

from graphpass.dialects.onnx.model import OnnxModel
from graphpass.dialects.onnx.tensors import SMALL, all_external_data, element_type, is_external, nbytes, tensors
from graphpass.dialects.rounding import Half, pieces_of, rounded_bytes
from graphpass.ir.bodies import inlined
from graphpass.ir.graph import Node
from graphpass.ir.model import Model
from graphpass.storage.digests import digests_of
from graphpass.storage.weight_file import FileRange, MappedWeights, WeightFile, check_unchanged

#: Number of digests of rounded weights that are cached.
_MOST_DIGESTS = 4096


@dataclass(frozen=True, slots=True, eq=False)
class Weight:
    """A tensor of more than 1 KiB.

    Attributes:
        name: Name of the tensor in the model.
        element_type: OpenVINO's short name.
        shape: The shape.
        content: Range of a weight file, or the bytes in memory.
        holder: Identity of the constant; see `holder_of`.
    """

    name: str
    element_type: str
    shape: tuple[int, ...]
    content: FileRange | memoryview
    holder: int | str

    @property
    def size(self) -> int:
        """Return the size in bytes."""
        return self.content.length if isinstance(self.content, FileRange) else self.content.nbytes

    @property
    def bytes_of(self) -> tuple[int, ...] | None:
        """Return the file's identity and the range in it; ``None`` for bytes in memory."""
        if not isinstance(self.content, FileRange):
            return None
        file = self.content.file
        return file.device, file.inode, file.size, file.modified, self.content.offset, self.content.length

    @property
    def described(self) -> str:
        """Return element type and shape as text."""
        return f"{self.element_type} [{', '.join(map(str, self.shape))}]"


def weights_of(model: Model, above: int = SMALL) -> tuple[Weight, ...]:
    """Return the weights of a model, bodies and functions included, without reading them.

    Args:
        model: The model.
        above: Size in bytes that a weight must exceed.

    Raises:
        ReadError: GP105, ONNX external data is missing.
    """
    weights = _of_onnx(model, above) if isinstance(model, OnnxModel) else _of_openvino(model, above)
    counts: Counter[str] = Counter()
    collected = []
    for weight in weights:
        counts[weight.name] += 1
        number = counts[weight.name]
        collected.append(weight if number == 1 else replace(weight, name=f"{weight.name}#{number}"))
    return tuple(collected)


def holder_of(node: Node) -> int | str:
    """Return the identity of a Constant's native object, which `Weight.holder` stores."""
    return id(node.native) if isinstance(node.native, onnx.TensorProto) else str(node.native.get_name())


def digests_of_weights(weights: Iterable[Weight]) -> dict[Weight, str]:
    """Return the SHA-256 of each weight; digests of files are cached.

    Raises:
        ReadError: GP110 and GP111, as `digests_of`.
    """
    weights = tuple(weights)
    digests = digests_of(weight.content for weight in weights if isinstance(weight.content, FileRange))
    return {
        weight: digests[weight.content]
        if isinstance(weight.content, FileRange)
        else hashlib.sha256(weight.content).hexdigest()
        for weight in weights
    }


def digests_in(half: Half, weights: Iterable[Weight]) -> dict[Weight, str]:
    """Return the SHA-256 of each f32 weight after rounding to ``half``.

    Digests of ranges of files are cached in the process.

    Args:
        half: Type of 16 bits; ties round to even.
        weights: Weights in f32.

    Raises:
        ReadError: GP110, a file changed since the model was read.
    """
    digests = {}
    for weight in weights:
        content = weight.content
        if isinstance(content, FileRange):
            check_unchanged([content.file])
            digests[weight] = _digest_of_range(half, content)
        else:
            digests[weight] = _digest_in(half, [content.tobytes()])
    return digests


@functools.lru_cache(maxsize=_MOST_DIGESTS)
def _digest_of_range(half: Half, content: FileRange) -> str:
    return _digest_in(half, pieces_of(content.file.path, content.offset, content.length))


def _digest_in(half: Half, pieces: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(rounded_bytes(numpy.frombuffer(piece, "<f4"), half)[0])
    return digest.hexdigest()


def _of_onnx(model: OnnxModel, above: int) -> Iterator[Weight]:
    files = {file.path: file for file in model.weight_files}
    # The tensor of a Constant often has no name, so the node's name is used.
    names = {id(node.native): node.name for node in inlined(model).graph.of_op("Constant")}
    large = [tensor for tensor in tensors(model.proto) if nbytes(tensor) > above]
    external = all_external_data(filter(is_external, large), model.path)
    for tensor in large:
        content: FileRange | memoryview
        if is_external(tensor):
            data = next(external)
            content = FileRange(files.get(data.file) or WeightFile.of(data.file), data.offset, data.length)
        elif tensor.HasField("raw_data"):
            content = memoryview(tensor.raw_data)
        elif tensor.data_type == onnx.TensorProto.STRING:
            content = memoryview(repr(list(tensor.string_data)).encode())
        else:
            content = memoryview(onnx.numpy_helper.to_array(tensor).tobytes())
        name = names.get(id(tensor)) or tensor.name or "unnamed"
        yield Weight(name, element_type(tensor.data_type), tuple(tensor.dims), content, id(tensor))


def _of_openvino(model: Model, above: int) -> Iterator[Weight]:
    from graphpass.dialects.openvino.model import OpenVINOModel
    from graphpass.dialects.openvino.names import all_ops

    assert isinstance(model, OpenVINOModel)
    mapped = MappedWeights(file for file in model.weight_files if file.unchanged)
    for op in all_ops(model.ov_model):
        if op.get_type_name() != "Constant" or op.get_byte_size() <= above:
            continue
        kind = op.get_element_type().to_string()
        content: FileRange | memoryview
        if kind == "string":
            content = memoryview(repr([text.encode() for text in op.get_tensor_view().str_data.ravel()]).encode())
        else:
            data = numpy.ravel(op.data).view(numpy.uint8)
            content = mapped.find(data.ctypes.data, data.size) or data.data
        yield Weight(op.get_friendly_name(), kind, tuple(op.shape), content, op.get_name())
