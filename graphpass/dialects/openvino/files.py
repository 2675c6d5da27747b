"""Write IRs whose graphs refer to weights by offsets in the ``.bin`` file.

OpenVINO's serializer reads and writes every weight. Here it writes only a stub of the graph, in which a ReadValue
stands for each large Constant. The XML is then edited: these layers become Constants with the offsets of their bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy
import openvino
from numpy.typing import NDArray
from openvino.op.util import Variable, VariableInfo
from openvino.utils import replace_output_update_name

from graphpass.dialects.openvino.names import all_models
from graphpass.dialects.openvino.xml import openvino_words, string_constants
from graphpass.errors import WriteError
from graphpass.storage.bin_file import BinFile
from graphpass.storage.weight_file import FileRange, MappedWeights, WeightFile, check_unchanged

#: Constants up to this many bytes stay in the stub, because OpenVINO infers shapes from their elements.
_SMALL = 1024

_STUB = "graphpass-constant-"

#: A layer of the stub that stands for a Constant, or a Constant: up to the end of its data element.
_LAYER = re.compile(
    rb'(<layer id="\d+" name="[^"]*" type=")'
    rb'(?:ReadValue" version="opset6">(?P<gap>\s*)<data variable_id="' + _STUB.encode() + rb'(?P<stub>\d+)"[^>]*/>'
    rb'|Const" version="opset1">\s*<data (?P<kept>[^>]*?)offset="(?P<offset>\d+)" size="(?P<size>\d+)" */>)'
)

_NO_NUMBERS = frozenset({"string", "dynamic"})


@dataclass(frozen=True, slots=True)
class _Weight:
    """A Constant, with type and shape as XML; ``byte_range`` is its range in a file."""

    described: str
    data: NDArray[numpy.uint8]
    byte_range: FileRange | None


def stage_openvino(
    ov_model: openvino.Model,
    source: Path | None,
    files: Sequence[WeightFile],
    folder: Path,
    file_name: str,
    *,
    share: bool,
) -> BinFile:
    """Write an IR into a staged folder without reading constants that are in ``files``.

    Args:
        ov_model: The model, which is not modified.
        source: The file that the model was read from.
        files: The weight files of the model.
        folder: The staged folder.
        file_name: Name of the ``.xml`` file; the ``.bin`` file has the same stem.
        share: Whether the ``.bin`` file is a hard link to the only weight file, to which new constants are appended.

    Returns:
        The ``.bin`` file.

    Raises:
        ReadError: GP110, one of ``files`` changed since the model was read.
        UsageError: GP230, the weights cannot be shared.
        WriteError: GP501, OpenVINO cannot write the graph.
        OSError: The file system reports an error.
    """
    # A file that was moved away is still mapped into memory.
    files = [file for file in files if file.path.exists()]
    check_unchanged(files)
    mapped = MappedWeights(files)
    stub = ov_model.clone()
    # In a clone, the tensor of an output keeps only the names that its Result has.
    for result, copy in zip(ov_model.get_results(), stub.get_results(), strict=True):
        copy.input_value(0).add_names(result.input_value(0).get_names())
    weights, small = _take_out(stub, mapped)
    xml, kept = _serialized(stub, folder / file_name)
    if files and source is not None and source.suffix == ".xml" and b'element_type="string"' in xml:
        small.update(_strings(source, files[0]))
    constants = [_constant(match, weights, kept, small) for match in _LAYER.finditer(xml)]
    bin_file = BinFile([constant.byte_range for constant in constants if constant.byte_range is not None], share=share)
    for constant in constants:
        if constant.byte_range is None:
            bin_file.append(constant.data)
    bin_file.reuse_appended()
    following = iter(constants)
    (folder / file_name).write_bytes(_LAYER.sub(lambda match: _layer(match, next(following), bin_file), xml))
    bin_file.write((folder / file_name).with_suffix(".bin"))
    if not share:
        check_unchanged(files)
    return bin_file


def _take_out(stub: openvino.Model, mapped: MappedWeights) -> tuple[list[_Weight], dict[bytes, FileRange]]:
    """Replace large Constants by ReadValues.

    Returns:
        The replaced weights, and the file ranges of small ones by content.
    """
    weights: list[_Weight] = []
    small: dict[bytes, FileRange] = {}
    for graph in all_models(stub):
        variables = []
        for op in graph.get_ordered_ops():
            if op.get_type_name() != "Constant" or op.get_element_type().to_string() in _NO_NUMBERS:
                continue
            data = numpy.ravel(op.data).view(numpy.uint8)
            byte_range = mapped.find(data.ctypes.data, data.size)
            if data.size <= _SMALL:
                if byte_range is not None and data.size:
                    known = small.setdefault(data.tobytes(), byte_range)
                    small[data.tobytes()] = min(
                        known, byte_range, key=lambda byte_range: (byte_range.file.path, byte_range.offset)
                    )
                continue
            info = VariableInfo()
            info.data_shape, info.data_type = op.output(0).get_partial_shape(), op.get_element_type()
            info.variable_id = f"{_STUB}{len(weights)}"
            variable = Variable(info)
            read = openvino.op.read_value(variable)
            # This call also transfers tensor names and the persistent runtime information.
            replace_output_update_name(op.output(0), read.output(0))
            read.set_friendly_name(op.get_friendly_name())
            variables.append(variable)
            shape = ", ".join(map(str, op.shape))
            described = f'element_type="{op.get_element_type().to_string()}" shape="{shape}"'
            weights.append(_Weight(described, data, byte_range))
        graph.add_variables(variables)
    return weights, small


def _strings(source: Path, file: WeightFile) -> Iterator[tuple[bytes, FileRange]]:
    """Yield bytes and file ranges of string Constants, whose form in memory differs."""
    with file.path.open("rb") as stream:
        for offset, size in string_constants(source):
            stream.seek(offset)
            yield stream.read(size), FileRange(file, offset, size)


def _serialized(stub: openvino.Model, xml: Path) -> tuple[bytes, bytes]:
    weights = xml.with_suffix(".bin")
    try:
        openvino.serialize(stub, str(xml), str(weights))
    except RuntimeError as error:
        hint = "check the free disk space"
        raise WriteError("GP501", f"OpenVINO cannot write {xml.name}: {openvino_words(error)}", hint) from error
    written = xml.read_bytes(), weights.read_bytes()
    weights.unlink()
    return written


def _constant(match: re.Match[bytes], weights: list[_Weight], kept: bytes, small: dict[bytes, FileRange]) -> _Weight:
    if match["stub"] is not None:
        return weights[int(match["stub"])]
    offset = int(match["offset"])
    content = kept[offset : offset + int(match["size"])]
    return _Weight(match["kept"].decode().rstrip(), numpy.frombuffer(content, numpy.uint8), small.get(content))


def _layer(match: re.Match[bytes], constant: _Weight, bin_file: BinFile) -> bytes:
    byte_range, data = constant.byte_range, constant.data
    offset = bin_file.append(data) if byte_range is None else bin_file.offset_of(byte_range)
    gap = match["gap"] if match["gap"] is not None else match[0].split(b">")[1].split(b"<")[0]
    layer = b'%sConst" version="opset1">%s<data ' % (match[1], gap)
    return layer + f'{constant.described} offset="{offset}" size="{data.size}" />'.encode()
