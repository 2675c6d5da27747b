"""Find the weights of models, and compare them by contents."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy

from graphpass.dialects.onnx.model import OnnxModel
from graphpass.dialects.onnx.tensors import SMALL
from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.ir.bodies import inlined
from graphpass.ir.model import Model
from graphpass.reports.diff.changes import Change, WeightChanges
from graphpass.storage.digests import digests_of
from graphpass.storage.weight_file import MappedWeights, Place, WeightFile


@dataclass(frozen=True, slots=True, eq=False)
class Weight:
    """Describes a tensor of more than 1 KiB.

    Attributes:
        name: The model's name for it.
        element_type: OpenVINO's short name.
        shape: Size along each axis.
        content: Place in a file, or the bytes themselves.
    """

    name: str
    element_type: str
    shape: tuple[int, ...]
    content: Place | memoryview

    @property
    def size(self) -> int:
        """Return the number of bytes."""
        return self.content.length if isinstance(self.content, Place) else self.content.nbytes

    @property
    def described(self) -> str:
        """Return element type and shape in words."""
        return f"{self.element_type} [{', '.join(map(str, self.shape))}]"


def weights_of(model: Model, above: int = SMALL) -> tuple[Weight, ...]:
    """Return the unread weights of a model, those in bodies and functions included.

    Args:
        model: The model.
        above: Largest size in bytes of a tensor that does not count.

    Raises:
        ReadError: GP105, ONNX external data is not where the model says.
    """
    if model.dialect == "onnx":
        from graphpass.dialects.onnx.model import OnnxModel

        assert isinstance(model, OnnxModel)
        weights = _of_onnx(model, above)
    else:
        from graphpass.dialects.openvino.model import OpenVINOModel

        assert isinstance(model, OpenVINOModel)
        weights = _of_openvino(model, above)
    counts: Counter[str] = Counter()
    found = []
    for weight in weights:
        counts[weight.name] += 1
        number = counts[weight.name]
        found.append(weight if number == 1 else replace(weight, name=f"{weight.name}#{number}"))
    return tuple(found)


def digest_of_weights(model: Model) -> str:
    """Digest names, types, shapes and bytes of all tensors outside a model's graph file.

    Places in files do not count, nor bytes between tensors.

    Raises:
        ReadError: GP105, GP110 and GP111, as `weights_of` and `digests_of`.
    """
    weights = weights_of(model, above=0)
    if model.dialect == "onnx":
        weights = tuple(weight for weight in weights if isinstance(weight.content, Place))
    digests = _digests(weights)
    found = hashlib.sha256()
    for weight in sorted(weights, key=lambda weight: weight.name):
        found.update(repr((weight.name, weight.described, digests[weight])).encode())
    return found.hexdigest()


def compare_weights(before: Sequence[Weight], after: Sequence[Weight]) -> WeightChanges:
    """Return how weights differ.

    Weights of the same name, element type and size are compared by digest, unless they are the same bytes of the same
    file. Of the others, those with the same contents under another name count as renamed.

    Raises:
        ReadError: GP110, a file of weights changed since the model was read.
    """
    news = {weight.name: weight for weight in after}
    pairs = [(old, news[old.name]) for old in before if old.name in news]
    paired = {old.name for old, _ in pairs}
    gone = [weight for weight in before if weight.name not in paired]
    added = [weight for weight in after if weight.name not in paired]
    likenesses = {_likeness(weight) for weight in gone} & {_likeness(weight) for weight in added}
    asked = [weight for weight in (*gone, *added) if _likeness(weight) in likenesses]
    asked += [weight for pair in pairs if _is_open(*pair) for weight in pair]
    digests = _digests(asked)

    changes = []
    unchanged = changed = 0
    for old, new in pairs:
        same = old.size == new.size and digests.get(old) == digests.get(new)
        unchanged, changed = (unchanged + old.size, changed) if same else (unchanged, changed + max(old.size, new.size))
        if not same or old.described != new.described:
            changes.append(Change(old.name, *_facets(old, new, digests)))
    left: dict[tuple[object, ...], list[Weight]] = {}
    for weight in added:
        left.setdefault((_likeness(weight), digests.get(weight)), []).append(weight)
    for old in gone:
        alike = left.get((_likeness(old), digests.get(old)), []) if old in digests else []
        if alike:
            unchanged += old.size
            changes.append(Change(old.name, {"name": old.name}, {"name": alike.pop(0).name}))
        else:
            changed += old.size
            changes.append(Change(old.name, {"is": old.described}, None))
    for new in (weight for weights in left.values() for weight in weights):
        changed += new.size
        changes.append(Change(new.name, None, {"is": new.described}))
    return WeightChanges(len(before), len(after), unchanged, changed, tuple(changes))


def _likeness(weight: Weight) -> tuple[object, ...]:
    return weight.described, weight.size


def _is_open(old: Weight, new: Weight) -> bool:
    """Return whether only the bytes can show that two weights are the same."""
    return old.size == new.size and (not isinstance(old.content, Place) or old.content != new.content)


def _facets(old: Weight, new: Weight, digests: dict[Weight, str]) -> tuple[dict[str, str], dict[str, str]]:
    facts = {
        "is": (old.described, new.described),
        "bytes": (str(old.size), str(new.size)),
        "sha256": (digests.get(old, ""), digests.get(new, "")),
    }
    differing = {key: words for key, words in facts.items() if words[0] != words[1]}
    return {key: words[0] for key, words in differing.items()}, {key: words[1] for key, words in differing.items()}


def _digests(weights: Sequence[Weight]) -> dict[Weight, str]:
    digests = digests_of(weight.content for weight in weights if isinstance(weight.content, Place))
    return {
        weight: digests[weight.content]
        if isinstance(weight.content, Place)
        else hashlib.sha256(weight.content).hexdigest()
        for weight in weights
    }


def _of_onnx(model: OnnxModel, above: int) -> Iterator[Weight]:
    from onnx import TensorProto, numpy_helper

    from graphpass.dialects.onnx.tensors import element_type, external_data, is_external, nbytes, tensors

    files = {file.path: file for file in model.weight_files}
    # A Constant's tensor often lacks a name; the node has one.
    names = {id(node.native): node.name for node in inlined(model).graph.of_op("Constant")}
    for tensor in tensors(model.proto):
        if nbytes(tensor) <= above:
            continue
        content: Place | memoryview
        if is_external(tensor):
            data = external_data(tensor, model.path)
            content = Place(files.get(data.file) or WeightFile.of(data.file), data.offset, data.length)
        elif tensor.HasField("raw_data"):
            content = memoryview(tensor.raw_data)
        elif tensor.data_type == TensorProto.STRING:
            content = memoryview(repr(list(tensor.string_data)).encode())
        else:
            content = memoryview(numpy_helper.to_array(tensor).tobytes())
        name = names.get(id(tensor)) or tensor.name or "unnamed"
        yield Weight(name, element_type(tensor.data_type), tuple(tensor.dims), content)


def _of_openvino(model: OpenVINOModel, above: int) -> Iterator[Weight]:
    from graphpass.dialects.openvino.names import all_ops

    mapped = MappedWeights(file for file in model.weight_files if file.unchanged)
    for op in all_ops(model.ov_model):
        if op.get_type_name() != "Constant" or op.get_byte_size() <= above:
            continue
        kind = op.get_element_type().to_string()
        content: Place | memoryview
        if kind == "string":
            content = memoryview(repr([text.encode() for text in op.get_tensor_view().str_data.ravel()]).encode())
        else:
            data = numpy.ravel(op.data).view(numpy.uint8)
            content = mapped.find(data.ctypes.data, data.size) or data.data
        yield Weight(op.get_friendly_name(), kind, tuple(op.shape), content)
