"""The pass `drop-needless-broadcasts`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from graphpass.analysis.lengths.proven import Lengths, find_lengths
from graphpass.analysis.shapes.linear_size import Size
from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.engine.passes import Changed, Pass, PassResult, Unchanged
from graphpass.ir.types import Dialect
from graphpass.passes.shapes.drop_identities import mask_ends

if TYPE_CHECKING:
    import openvino

__all__ = ["DropNeedlessBroadcasts"]

#: Operators that broadcast their operands, by numpy's rule, to one shape.
_ELEMENTWISE = frozenset(
    {
        *("Add", "Divide", "Maximum", "Minimum", "Multiply", "Power", "Select", "Subtract"),
        *("Equal", "Greater", "GreaterEqual", "Less", "LessEqual", "NotEqual"),
        *("BitwiseAnd", "BitwiseOr", "BitwiseXor", "LogicalAnd", "LogicalOr", "LogicalXor"),
    }
)


@dataclass(frozen=True)
class DropNeedlessBroadcasts(Pass[OpenVINOModel]):
    """Take out a Broadcast whose reader broadcasts to the same shape by itself.

    Rotary embeddings are exported with their frequencies expanded to the batch before a product that would do that too.
    Lengths are told apart as `share-dimensions` does.

    Shapes:
        any; the axes that were broadcast have the same size in another operand of the reader. Of a MatMul only the
        axes before the last two, and not beside weights: the CPU plugin (2026.4.1) makes a FullyConnected of that,
        which broadcasts nothing.

    Before:
        frequencies [1, n, 1] -> Broadcast [batch, n, 1] -> MatMul with positions [batch, 1, length]
    After:
        frequencies [1, n, 1] -> MatMul with positions [batch, 1, length]
    """

    name: ClassVar[str] = "drop-needless-broadcasts"
    dialect: ClassVar[Dialect | None] = "openvino"

    def run(self, model: OpenVINOModel) -> PassResult:
        """See `Pass.run`."""
        sizes = find_lengths(model)
        kept = mask_ends(model.ov_model)
        dropped = 0
        for op in model.ov_model.get_ordered_ops():
            if op.get_type_name() != "Broadcast" or op.get_name() in kept:
                continue
            for reader in sorted(op.output(0).get_target_inputs(), key=_place):
                if _is_needless(op, reader, sizes):
                    reader.replace_source_output(op.input_value(0))
                    dropped += 1
        if not dropped:
            return Unchanged()
        model.ov_model.validate_nodes_and_infer_types()
        return Changed(model, {"broadcasts dropped": dropped})


def _place(reader: openvino.Input) -> tuple[str, int]:
    return reader.get_node().get_friendly_name(), reader.get_index()


def _is_needless(broadcast: openvino.Node, reader: openvino.Input, sizes: Lengths) -> bool:
    """Whether ``reader`` gives the same with what is broadcast in place of the Broadcast."""
    node = reader.get_node()
    kind = node.get_type_name()
    before, after = sizes.shape(broadcast.input_value(0)), sizes.shape(broadcast.output(0))
    # Operands as they are now: a Broadcast that was dropped no longer counts.
    others = [
        sizes.shape(node.input_value(port)) for port in range(node.get_input_size()) if port != reader.get_index()
    ]
    if before is None or after is None or None in others or not (kind in _ELEMENTWISE or kind == "MatMul"):
        return False
    if kind == "MatMul":
        if before[-2:] != after[-2:] or len(before) < 2 or _is_constant(node.input_value(1 - reader.get_index())):
            return False
        others = [other[:-2] for other in others if other is not None]
        before, after = before[:-2], after[:-2]
    elif node.get_attributes().get("auto_broadcast") != "numpy":
        return False
    known = [before, *(other for other in others if other is not None)]
    if max(map(len, known)) < len(after):
        return False
    one = Size(1)
    for place in range(1, len(after) + 1):
        old = before[-place] if place <= len(before) else one
        if old == after[-place]:
            continue
        if old != one or not any(place <= len(other) and other[-place] == after[-place] for other in known[1:]):
            return False
    return True


def _is_constant(output: openvino.Output) -> bool:
    """Whether ``output`` is made of constants alone."""
    pending, seen = [output.get_node()], set()
    while pending:
        node = pending.pop()
        if node.get_type_name() in {"Parameter", "ReadValue"}:
            return False
        if node.get_name() not in seen:
            seen.add(node.get_name())
            pending += [source.get_node() for source in node.input_values()]
    return True
