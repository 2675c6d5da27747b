"""Find the weights of models, and compare them by contents."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
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
    def bytes_of(self) -> tuple[int, ...] | None:
        """Return the file's identity and the place in it; ``None`` for bytes in memory."""
        if not isinstance(self.content, Place):
            return None
        file = self.content.file
        return file.device, file.inode, file.size, file.modified, self.content.offset, self.content.length

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
    # Results that share their input's weights read the same bytes under other names: nothing is left to digest.
    renamed = _renamed(gone, added, lambda weight: weight.bytes_of)
    left = [weight for weight in gone if weight not in renamed]
    found = set(renamed.values())
    added = [weight for weight in added if weight not in found]
    likenesses = {_likeness(weight) for weight in left} & {_likeness(weight) for weight in added}
    asked = [weight for weight in (*left, *added) if _likeness(weight) in likenesses]
    asked += [weight for pair in pairs if _is_open(*pair) for weight in pair]
    digests = _digests(asked)
    renamed |= _renamed(left, added, digests.get)
    found = set(renamed.values())

    changes = []
    unchanged = changed = 0
    for old, new in pairs:
        same = old.size == new.size and digests.get(old) == digests.get(new)
        unchanged, changed = (unchanged + old.size, changed) if same else (unchanged, changed + max(old.size, new.size))
        if not same or old.described != new.described:
            changes.append(Change(old.name, *_facets(old, new, digests)))
    for old in gone:
        if old in renamed:
            unchanged += old.size
            changes.append(Change(old.name, {"name": old.name}, {"name": renamed[old].name}))
        else:
            changed += old.size
            changes.append(Change(old.name, {"is": old.described}, None))
    for new in added:
        if new not in found:
            changed += new.size
            changes.append(Change(new.name, None, {"is": new.described}))
    return WeightChanges(len(before), len(after), unchanged, changed, tuple(changes))


def _renamed(
    gone: Sequence[Weight], added: Sequence[Weight], content: Callable[[Weight], object]
) -> dict[Weight, Weight]:
    """Pair weights alike whose ``content`` is known and equal, each once."""
    open_ones: dict[object, list[Weight]] = {}
    for weight in reversed(added):
        open_ones.setdefault((_likeness(weight), content(weight)), []).append(weight)
    candidates = {old: open_ones.get((_likeness(old), content(old)), []) for old in gone if content(old) is not None}
    return {old: alike.pop() for old, alike in candidates.items() if alike}


def _likeness(weight: Weight) -> tuple[object, ...]:
    return weight.described, weight.size


def _is_open(old: Weight, new: Weight) -> bool:
    """Return whether only the bytes can show that two weights are the same."""
    return old.size == new.size and (old.bytes_of is None or old.bytes_of != new.bytes_of)


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

    from graphpass.dialects.onnx.tensors import all_external_data, element_type, is_external, nbytes, tensors

    files = {file.path: file for file in model.weight_files}
    # A Constant's tensor often lacks a name; the node has one.
    names = {id(node.native): node.name for node in inlined(model).graph.of_op("Constant")}
    large = [tensor for tensor in tensors(model.proto) if nbytes(tensor) > above]
    external = all_external_data(filter(is_external, large), model.path)
    for tensor in large:
        content: Place | memoryview
        if is_external(tensor):
            data = next(external)
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
