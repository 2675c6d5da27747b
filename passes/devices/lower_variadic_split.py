"""The pass `lower-variadic-split`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.dialects.openvino.rewrite import fold, integers, named
from graphpass.engine.passes import Changed, Pass, PassResult, Unchanged
from graphpass.ir.types import Dialect
from graphpass.targets.gpu.scaling import scales_activations

if TYPE_CHECKING:
    import openvino

__all__ = ["LowerVariadicSplit"]


@dataclass(frozen=True)
class LowerVariadicSplit(Pass[OpenVINOModel]):
    """Write a VariadicSplit whose parts are multiplied with each other as Slices, where activations are scaled.

    Optimum notes ACTIVATIONS_SCALE_FACTOR in nearly every IR. GPU plugins then move factors through the graph, and
    take the outputs of a VariadicSplit for one, so that they refuse gated convolutions (LFM2's). That of 2026.4.1
    leaves models alone one of whose caches is only read, ordered by beams and appended to: it refuses stateless ones,
    and those whose caches are all moved or cut.

    Shapes:
        any; the lengths of the parts are known.

    Before:
        VariadicSplit(x, axis, [a, b, c]) -> Multiply(part 0, part 2)
    After:
        Multiply(Slice(x, 0 : a), Slice(x, a + b : a + b + c))
    """

    name: ClassVar[str] = "lower-variadic-split"
    dialect: ClassVar[Dialect | None] = "openvino"

    def run(self, model: OpenVINOModel) -> PassResult:
        """See `Pass.run`."""
        if not scales_activations(model):
            return Unchanged()
        count = sum(_lower(op) for op in model.ov_model.get_ordered_ops() if _multiplies_parts(op))
        if not count:
            return Unchanged()
        model.ov_model.validate_nodes_and_infer_types()
        return Changed(model, {"VariadicSplit lowered": count})


def _multiplies_parts(op: openvino.Node) -> bool:
    """Whether ``op`` is a VariadicSplit two of whose outputs one Multiply reads."""
    if op.get_type_name() != "VariadicSplit":
        return False
    readers = [
        {reader.get_node().get_name() for reader in output.get_target_inputs() if _is_product(reader.get_node())}
        for output in op.outputs()
    ]
    return len(set().union(*readers)) < sum(map(len, readers))


def _is_product(node: openvino.Node) -> bool:
    return bool(node.get_type_name() == "Multiply")


def _lower(split: openvino.Node) -> bool:
    from openvino import opset8

    axis, shapes = fold(split.input_value(1)), [output.get_partial_shape() for output in split.outputs()]
    if axis is None or any(shape.rank.is_dynamic for shape in shapes):
        return False
    along = int(axis.reshape(-1)[0]) % len(shapes[0])
    # A length may be given as -1, the rest; what was inferred of it is what counts.
    if any(shape[along].is_dynamic for shape in shapes):
        return False
    start = 0
    for port, length in enumerate(shape[along].get_length() for shape in shapes):
        name = f"{split.get_friendly_name()}/part_{port}"
        parts = (("start", start), ("stop", start + length), ("step", 1), ("axis", along))
        bounds = [integers([value], f"{name}/{part}") for part, value in parts]
        part = named(opset8.slice(split.input_value(0), *bounds), name)
        for reader in split.output(port).get_target_inputs():
            reader.replace_source_output(part.output(0))
        start += length
    return True
