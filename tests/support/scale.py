"""Models of real shapes and any number of layers, whose weights are holes in a sparse file, so that size costs no disk.

>>> path = scaled("llama", "70B", folder, layers=80)    # doctest: +SKIP
"""

from __future__ import annotations

import functools
import re
import tarfile
from dataclasses import dataclass
from pathlib import Path

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper

__all__ = ["SIZES", "Size", "scaled", "scaled_ir", "template"]

_TEMPLATES = Path(__file__).resolve().parents[2] / "fixtures" / "templates.tar.xz"

#: Layers of a template that are repeated, as often as it takes: the two in the middle.
_FIRST, _LAST = 1, 2

_ALIGNMENT = 4096


@dataclass(frozen=True)
class Size:
    """What a model is to have in place of a template's sizes."""

    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    inner: int
    vocabulary: int
    layers: int
    positions: int = 32768
    window: int = 4096
    expert_inner: int = 768

    def of(self, name: str) -> dict[int, int]:
        """The number that takes the place of each number of template ``name``."""
        groups, packed = self.heads // self.kv_heads, (self.heads + 2 * self.kv_heads) * self.head_dim
        # A builder's hybrid has heads as wide as its hidden size.
        hidden = self.heads * self.head_dim if name == "lfm2" else self.hidden
        return {
            1517: self.vocabulary,
            646: hidden,
            899: self.inner,
            143: self.heads,
            11: self.kv_heads,
            13: groups,
            46: self.head_dim,
            23: self.head_dim // 2,
            143 * 46: self.heads * self.head_dim,
            11 * 46: self.kv_heads * self.head_dim,
            (143 + 22) * 46: packed,
            3 * 143 * 46: 3 * self.heads * self.head_dim,
            4099: self.positions,
            1021: self.window,
            -1021: -self.window,
            391: self.expert_inner,
        }


#: Shapes of Qwen2.5-0.5B, Llama-3-8B and Llama-3-70B.
SIZES = {
    "tiny": Size(64, 4, 2, 16, 128, 320, 4, positions=512, window=64, expert_inner=32),
    "0.5B": Size(896, 14, 2, 64, 4864, 151936, 24),
    "8B": Size(4096, 32, 8, 128, 14336, 128256, 32),
    "70B": Size(8192, 64, 8, 128, 28672, 128256, 80),
}


@functools.cache
def template(name: str) -> onnx.ModelProto:
    """A graph of four layers without weights."""
    with tarfile.open(_TEMPLATES, "r:xz") as archive:
        file = archive.extractfile(f"{name}.onnx")
        assert file is not None
        return onnx.ModelProto.FromString(file.read())


def scaled(name: str, size: str | Size, folder: Path, layers: int | None = None, seed: int | None = None) -> Path:
    """Write a model.

    Args:
        name: A template: llama, llama_f16, mistral, gemma3, qwen3_moe or lfm2.
        size: Its sizes.
        folder: Where to write ``model.onnx`` and ``model.onnx.data``.
        layers: An even number from 4 on; those of ``size`` by default.
        seed: Fill the weights with random numbers; holes, which read as zeros, by default.

    Returns:
        The ``.onnx`` file.
    """
    sizes = SIZES[size] if isinstance(size, str) else size
    proto = onnx.ModelProto()
    proto.CopyFrom(template(name))
    _deepen(proto.graph, sizes.layers if layers is None else layers)
    _resize(proto.graph, sizes.of(name))
    folder.mkdir(parents=True, exist_ok=True)
    _place_weights(proto.graph, folder / "model.onnx.data", seed)
    (folder / "model.onnx").write_bytes(proto.SerializeToString())
    return folder / "model.onnx"


def scaled_ir(name: str, size: str | Size, folder: Path, layers: int | None = None, seed: int | None = None) -> Path:
    """Write a model as a stateless IR over the weights of its ONNX form, which stays below ``folder``.

    Returns:
        The ``.xml`` file.
    """
    from graphpass import PassManager, load, parse, save

    source = load(scaled(name, size, folder / "onnx", layers, seed))
    save(PassManager(parse("to-openvino")).run(source).model, folder / "openvino_model.xml", weights="share")
    return folder / "openvino_model.xml"


def _layer(name: str) -> int | None:
    match = re.search(r"[./](?:layers|past_key_values|present|past)\.(\d+)[./]", name)
    return int(match[1]) if match else None


def _shifted(name: str, by: int) -> str:
    pattern = (
        r"(?<=[./])((?:layers|past_key_values|present|past)\.)(\d+)(?=[./])|^((?:past_key_values|present|past)\.)(\d+)"
    )

    def shift(match: re.Match[str]) -> str:
        return f"{match[1] or match[3]}{int(match[2] or match[4]) + by}"

    return re.sub(pattern, shift, name)


def _port_layer(name: str) -> int | None:
    match = re.match(r"(?:past_key_values|present|past)\.(\d+)\.", name)
    return int(match[1]) if match else None


def _deepen(graph: onnx.GraphProto, layers: int) -> None:
    """Repeat the layers in the middle."""
    assert layers >= 4
    assert layers % 2 == 0
    period = _LAST - _FIRST + 1
    copies = (layers - 4) // period
    block = [node for node in graph.node if _layer(node.name) is not None and _FIRST <= _layer(node.name) <= _LAST]
    inside = {id(node) for node in block}
    produced = {name for node in block for name in node.output if name}
    rest = [node for node in graph.node if id(node) not in inside]
    read_outside = {name for node in rest for name in node.input}
    exits = produced & read_outside
    own = {name for node in block for name in node.input} - read_outside
    weights = [tensor for tensor in graph.initializer if tensor.name in own]
    ports = [port for port in (*graph.input, *graph.output) if _port_layer(port.name) in {_FIRST, _LAST}]
    # What the last layer and all after it call so comes from the last copy.
    by = copies * period
    tail = [node for node in rest if (layer := _layer(node.name)) is not None and layer > _LAST]
    names = {name: _shifted(name, by) for node in tail for name in (*node.output, *node.input)}
    names |= {name: _shifted(name, by) for name in exits}
    tail_weights = {tensor.name for tensor in graph.initializer} & {
        name for node in tail for name in node.input if _layer(f"/{name}") is not None
    }
    for tensor in graph.initializer:
        if tensor.name in tail_weights:
            tensor.name = _shifted(tensor.name, by)
    for port in (*graph.input, *graph.output):
        if (layer := _port_layer(port.name)) is not None and layer > _LAST:
            names[port.name] = _shifted(port.name, by)
            port.name = names[port.name]
    keep = {name for node in graph.node for name in node.output if _layer(node.name) is None} - exits
    keep |= {name for node in graph.node if (_layer(node.name) or 0) < _FIRST for name in node.output}
    for node in rest:
        layer = _layer(node.name)
        if layer is not None and layer < _FIRST:
            continue
        node.input[:] = [name if name in keep else names.get(name, name) for name in node.input]
        node.output[:] = [name if name in keep else names.get(name, name) for name in node.output]
        if layer is not None:
            node.name = _shifted(node.name, by)
    infos = [info for info in graph.value_info if info.name in produced]
    for info in graph.value_info:
        if info.name not in produced and info.name not in keep:
            info.name = names.get(info.name, info.name)
    for copy in range(1, copies + 1):
        offset = copy * period
        renamed = {name: _shifted(name, offset) for name in produced | {port.name for port in ports}}
        renamed |= {tensor.name: _copied(tensor.name, offset) for tensor in weights}
        for node in block:
            new = graph.node.add()
            new.CopyFrom(node)
            new.name = _shifted(node.name, offset)
            new.output[:] = [renamed.get(name, name) for name in node.output]
            # What the layer before the block makes for it, the block makes for the copy.
            entering = {name: _shifted(name, offset) for name in node.input if _shifted(name, period) in exits}
            new.input[:] = [renamed.get(name, entering.get(name, name)) for name in node.input]
        for info in infos:
            new = graph.value_info.add()
            new.CopyFrom(info)
            new.name = renamed[info.name]
        for tensor in weights:
            new = graph.initializer.add()
            new.CopyFrom(tensor)
            new.name = renamed[tensor.name]
        for port in ports:
            holder = graph.input if port.name in {info.name for info in graph.input} else graph.output
            new = holder.add()
            new.CopyFrom(port)
            new.name = renamed[port.name]
    _sort(graph)


def _copied(name: str, offset: int) -> str:
    shifted = _shifted(f"/{name}", offset)[1:]
    return shifted if shifted != name else f"{name}.{offset}"


def _sort(graph: onnx.GraphProto) -> None:
    """Order nodes by what they read, and ports by layer, as exporters do."""
    produced = {name for node in graph.node for name in node.output if name}
    nodes, done, ordered = list(graph.node), set(), []
    makers = {name: node for node in nodes for name in node.output if name}
    for root in nodes:
        pending = [root]
        while pending:
            node = pending[-1]
            if id(node) in done:
                pending.pop()
                continue
            missing = [makers[name] for name in node.input if name in produced and id(makers[name]) not in done]
            if missing:
                pending += missing
                continue
            done.add(id(pending.pop()))
            ordered.append(node)
    contents = [node.SerializeToString() for node in ordered]
    del graph.node[:]
    graph.node.extend(onnx.NodeProto.FromString(content) for content in contents)
    for infos in (graph.input, graph.output):
        places = {info.name: place for place, info in enumerate(infos)}
        infos.sort(
            key=lambda info: (_port_layer(info.name) is not None, _port_layer(info.name) or 0, places[info.name])
        )


def _resize(graph: onnx.GraphProto, sizes: dict[int, int]) -> None:
    """Put other sizes in the place of the template's, in shapes, constants and attributes."""
    for info in (*graph.input, *graph.output, *graph.value_info):
        for dimension in info.type.tensor_type.shape.dim:
            if dimension.HasField("dim_value"):
                dimension.dim_value = sizes.get(dimension.dim_value, dimension.dim_value)
    for tensor in graph.initializer:
        if tensor.data_location == TensorProto.EXTERNAL:
            tensor.dims[:] = [sizes.get(size, size) for size in tensor.dims]
        else:
            _resize_small(tensor, sizes)
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == attribute.TENSOR:
                _resize_small(attribute.t, sizes)
            elif attribute.type == attribute.INT and attribute.name in {"num_heads", "kv_num_heads"}:
                attribute.i = sizes.get(attribute.i, attribute.i)
            elif attribute.type == attribute.FLOAT and attribute.name == "scale":
                attribute.f = sizes[46] ** -0.5


def _resize_small(tensor: TensorProto, sizes: dict[int, int]) -> None:
    array = numpy_helper.to_array(tensor)
    if array.dtype.kind in "iu":
        values = numpy.array([sizes.get(int(size), int(size)) for size in array.reshape(-1)], array.dtype)
        values = values.reshape(array.shape)
    elif any(size in sizes for size in array.shape):
        shape = [sizes.get(size, size) for size in array.shape]
        count = int(numpy.prod(shape))
        # Frequencies of a rotary embedding; norms are as well served by numbers between 0 and 1.
        values = (10000.0 ** (-numpy.arange(count) / count)).astype(array.dtype).reshape(shape)
    else:
        return
    name = tensor.name
    tensor.CopyFrom(numpy_helper.from_array(values, name))


def _place_weights(graph: onnx.GraphProto, file: Path, seed: int | None) -> None:
    """Refer to one data file, as large as all weights need."""
    offset = 0
    rng = None if seed is None else numpy.random.default_rng(seed)
    with file.open("wb") as stream:
        for tensor in graph.initializer:
            if tensor.data_location != TensorProto.EXTERNAL:
                continue
            dtype = helper.tensor_dtype_to_np_dtype(tensor.data_type)
            length = int(numpy.prod(tensor.dims, dtype=numpy.int64)) * dtype.itemsize
            del tensor.external_data[:]
            for key, value in (("location", file.name), ("offset", offset), ("length", length)):
                tensor.external_data.add(key=key, value=str(value))
            if rng is not None:
                stream.seek(offset)
                _fill(stream, tensor, dtype, rng)
            offset += -(-length // _ALIGNMENT) * _ALIGNMENT
        stream.truncate(offset)


def _fill(stream, tensor: TensorProto, dtype: numpy.dtype, rng: numpy.random.Generator) -> None:
    """Write random numbers, some rows at a time."""
    shape = list(tensor.dims)
    scale = 1.0 if len(shape) == 1 else 1.4 / shape[-2] ** 0.5
    rows, width = (1, shape[0]) if len(shape) == 1 else (shape[0], int(numpy.prod(shape[1:])))
    for start in range(0, rows, 1024):
        count = min(1024, rows - start)
        numbers = rng.standard_normal((count, width), numpy.float32) * scale
        stream.write((numbers if len(shape) > 1 else 1 + 0.1 * numbers).astype(dtype).tobytes())
