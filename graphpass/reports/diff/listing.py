"""One file of a model as lines of text, for git and other programs.

Git passes single files, and old versions in a separate folder, so no file beside it is read. Weights in other files are
listed by name, type and shape. A weight file is listed by size and digest.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from graphpass.dialects.openvino.xml import check_xml
from graphpass.errors import ReadError
from graphpass.ir.types import shape_text
from graphpass.reports.diff.operators import plain_attribute
from graphpass.storage.digests import digest_of_file

if TYPE_CHECKING:
    from collections.abc import Iterator

    import onnx


_CHUNK = 2**20


def list_file(path: Path) -> str:
    """Return a file as text.

    | file | text |
    | --- | --- |
    | ``.onnx``, ``.xml`` of an IR | a line for each operator |
    | other or damaged file with text | its content |
    | other or damaged binary file | size and digest |

    Args:
        path: The file.

    Raises:
        ReadError: GP101, the file does not exist; GP104, the file cannot be read.
    """
    if not path.is_file():
        raise ReadError("GP101", f"{path} is not a file")
    try:
        if path.suffix.lower() == ".xml":
            check_xml(path)
            return "\n".join(_of_ir(path))
        if path.suffix.lower() == ".onnx":
            from graphpass.dialects.onnx.model import parse_onnx

            return "\n".join(_of_onnx(parse_onnx(path)))
    # A file of another format with this suffix, or a damaged file.
    except (ReadError, ElementTree.ParseError):
        pass
    return _of_any(path)


def _of_any(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            start = stream.read(_CHUNK)
        if len(start) < _CHUNK and b"\0" not in start:
            return start.decode("utf-8", "backslashreplace").rstrip("\n")
        return f"{path.stat().st_size} bytes, sha256 {digest_of_file(path)}"
    except OSError as error:
        raise ReadError("GP104", f"{path} cannot be read: {error.strerror}") from error


def _of_ir(path: Path) -> Iterator[str]:
    net = ElementTree.parse(path).getroot()  # noqa: S314 - `check_xml` refuses entities
    yield f"OpenVINO IR {net.get('name', '')}"
    pending = [(net, "")]
    while pending:
        graph, indent = pending.pop()
        sources = {
            (edge.get("to-layer"), edge.get("to-port")): (edge.get("from-layer"), edge.get("from-port"))
            for edge in graph.iterfind("edges/edge")
        }
        names = {layer.get("id"): layer.get("name", "") for layer in graph.iterfind("layers/layer")}
        for layer in graph.iterfind("layers/layer"):
            yield indent + _layer(layer, names, sources)
            pending += [(body, f"{indent}  {layer.get('name', '')} / ") for body in layer if body.tag.endswith("body")]
    rt_info = net.find("rt_info")
    for element in () if rt_info is None else rt_info.iter():
        if "value" in element.attrib:
            yield f"rt_info {element.tag} {element.get('value')}"


def _layer(layer: ElementTree.Element, names: dict[Any, str], sources: dict[Any, Any]) -> str:
    number, kind = layer.get("id"), layer.get("type", "")
    data = layer.find("data")
    attributes = dict(data.attrib) if data is not None else {}
    parts = [kind, layer.get("name", "")]
    if kind == "Const":
        attributes.pop("offset", None)  # changes whenever an earlier weight grows
    parts += [f"{key}={value}" for key, value in sorted(attributes.items())]
    reads = [sources.get((number, port.get("id"))) for port in layer.iterfind("input/port")]
    if reads:
        parts.append(f"reads {', '.join(names.get(source[0], '') if source else '-' for source in reads)}")
    for port in layer.iterfind("output/port"):
        shape = ",".join(dim.text or "" for dim in port.iterfind("dim"))
        parts.append(f"-> {port.get('precision', '')}[{shape}] {port.get('names', '')}".rstrip())
    return " ".join(parts)


def _of_onnx(proto: onnx.ModelProto) -> Iterator[str]:
    from graphpass.dialects.onnx.tensors import graphs

    yield f"ONNX {proto.graph.name}"
    for name in ("ir_version", "producer_name", "producer_version", "domain", "model_version"):
        if proto.HasField(name):
            yield f"{name} {getattr(proto, name)}"
    yield from (f"opset {entry.domain or 'ai.onnx'} {entry.version}" for entry in proto.opset_import)
    yield from (f"property {entry.key} {entry.value}" for entry in proto.metadata_props)
    for graph in (proto.graph, *(graph for graph in graphs(proto) if graph is not proto.graph)):
        if graph is not proto.graph:
            yield f"graph {graph.name}"
        yield from _graph(graph)


def _graph(graph: Any) -> Iterator[str]:
    import onnx

    from graphpass.dialects.onnx.model import port_of

    if isinstance(graph, onnx.GraphProto):
        for kind, infos in (("input", graph.input), ("output", graph.output)):
            for port in map(port_of, infos):
                yield f"{kind} {port.name} {port.element_type}{shape_text(port.shape)}"
        yield from (_tensor(tensor) for tensor in graph.initializer)
    for node in graph.node:
        attributes = [f"{entry.name}={plain_attribute(entry)}" for entry in node.attribute]
        kind = f"{node.domain}.{node.op_type}" if node.domain else node.op_type
        reads, makes = (", ".join(name or "-" for name in names) for names in (node.input, node.output))
        yield " ".join([kind, node.name, *attributes, f"reads {reads} -> {makes}"])


def _tensor(tensor: onnx.TensorProto) -> str:
    from graphpass.dialects.onnx.tensors import element_type, is_external

    described = f"tensor {tensor.name} {element_type(tensor.data_type)}{list(tensor.dims)}"
    if is_external(tensor):
        location = next((entry.value for entry in tensor.external_data if entry.key == "location"), "")
        return f"{described} in {location}"
    content = tensor.raw_data if tensor.HasField("raw_data") else tensor.SerializeToString(deterministic=True)
    return f"{described} sha256 {hashlib.sha256(content).hexdigest()}"
