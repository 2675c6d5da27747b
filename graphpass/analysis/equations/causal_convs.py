"""Find convolutions over a window of cached columns and new ones."""

from __future__ import annotations

from dataclasses import dataclass

from graphpass.analysis.symbolic.expressions import Expr, negative, number
from graphpass.analysis.symbolic.folding import fold_cuts
from graphpass.analysis.symbolic.sizes import infer_sizes
from graphpass.ir.graph import Node, Value
from graphpass.ir.miss import Miss, MissError, or_miss
from graphpass.ir.model import Model
from graphpass.ir.operators import CASTS, SHAPE_READERS
from graphpass.ir.values import fixed_size

#: The axis of columns.
COLUMNS = 2


@dataclass(frozen=True)
class CausalConv:
    """A depthwise convolution whose window is kept from step to step.

    Attributes:
        conv: The Conv.
        past: Columns of earlier steps, ``[batch, channels, width]``.
        new: Those of this step.
        width: Number of columns that are kept.
        reach: Number of columns before its own that a result reads.
        dilation: Distance of the columns that it reads.
        output: Results of the new columns.
        presents: The last ``width`` columns.
    """

    conv: Node
    past: Value
    new: Value
    width: int
    reach: int
    dilation: int
    output: Value
    presents: tuple[Value, ...]


def find_causal_convs(model: Model) -> dict[str, CausalConv | Miss]:
    """Find the grouped convolutions of joined columns, by name, for `Model.analysis`."""
    graph = model.graph
    convs: dict[str, CausalConv | Miss] = {}
    for conv in graph.of_op("Conv"):
        joined = graph.producer(graph.look_through(conv.source(), CASTS))
        grouped = conv.attributes.get("group", 1) > 1
        if grouped and joined.op == "Concat" and joined.attributes["axis"] == COLUMNS:
            convs[conv.name] = _read(model, conv, joined)
    return convs


@or_miss
def _read(model: Model, conv: Node, joined: Node) -> CausalConv:
    graph, sizes = model.graph, model.analysis(infer_sizes)
    if len(joined.inputs) != 2:
        raise MissError(joined, f"{len(joined.inputs)} tensors are joined, not past and new columns")
    past, new = joined.source(0), joined.source(1)
    width, kernel, dilation = fixed_size(past, COLUMNS), *_kernel(conv)
    reach = (kernel - 1) * dilation
    if width is None or width < reach or not reach:
        raise MissError(joined, f"{past.name} holds {width} columns, and a result reads {reach} of earlier steps")
    if {past.element_type, new.element_type, conv.source(1).element_type} != {"f32"}:
        raise MissError(conv, f"columns are of type {new.element_type}, not f32")
    shape = sizes.shape(new)
    length = shape[COLUMNS] if shape is not None else None
    whole = joined.outputs[0]
    readers = [use.node for use in graph.uses(whole) if use.node != conv and use.node.op not in SHAPE_READERS]
    for reader in readers:
        if not _keeps_last(model, reader, number(width), length):
            raise MissError(reader, f"{reader.op} reads the window besides, and does not keep its last {width} columns")
    output, left = conv.outputs[0], number(width - reach)
    users = [use.node for use in graph.uses(output) if use.node.op not in SHAPE_READERS]
    if len(users) == 1 and _keeps_last(model, users[0], length, left):
        output = users[0].outputs[0]
    elif width > reach:
        raise MissError(conv, f"results of {width - reach} columns before the new ones are not cut off at once")
    presents = tuple(reader.outputs[0] for reader in readers)
    return CausalConv(conv, past, new, width, reach, dilation, output, presents)


def _kernel(conv: Node) -> tuple[int, int]:
    """Return columns of the kernel, and their distance."""
    attributes, weight = conv.attributes, conv.source(1)
    shape = weight.shape or ()
    if len(shape) != 3 or not isinstance(shape[2], int) or shape[1] != 1 or shape[0] != attributes["group"]:
        raise MissError(
            conv, f"the weight is of shape {list(shape)}, not one kernel for each of {attributes['group']} channels"
        )
    plain = not any(attributes.get("pads", ())) and set(attributes.get("strides", ())) <= {1}
    if not plain or attributes.get("auto_pad", b"NOTSET") not in {b"NOTSET", b"VALID"}:
        raise MissError(conv, "it pads, or steps over columns")
    return shape[2], next(iter(attributes.get("dilations", ())), 1)


def _keeps_last(model: Model, node: Node, count: Expr | None, left: Expr | None) -> bool:
    """Return whether ``node`` keeps the last ``count`` columns, before which ``left`` ones are."""
    cuts, content = fold_cuts(model.graph, node), model.analysis(infer_sizes).content(node.input(1))
    if len(cuts) != 1 or cuts[0].axis != COLUMNS or cuts[0].step != 1 or not cuts[0].reaches_end or content is None:
        return False
    return (count is not None and content == (negative(count),)) or (left is not None and content == (left,))
