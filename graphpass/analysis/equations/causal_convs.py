"""Find causal convolutions over cached and new columns."""

from __future__ import annotations

from dataclasses import dataclass

from graphpass.analysis.symbolic.expressions import Expr, add, negative, number
from graphpass.analysis.symbolic.folding import fold_cuts
from graphpass.analysis.symbolic.sizes import infer_sizes
from graphpass.ir.graph import Node, Value
from graphpass.ir.miss import Miss, MissError, or_miss
from graphpass.ir.model import Model
from graphpass.ir.operators import CASTS, SHAPE_READERS, UNARY
from graphpass.ir.values import fixed_size

#: The axis of columns, one per token.
COLUMNS = 2

#: Elementwise operators of activations; SiLU is a Multiply of a value by its Sigmoid.
_ACTIVATIONS = UNARY | {"Multiply"}


@dataclass(frozen=True)
class CausalConv:
    """A depthwise convolution over tokens with a cache of its last columns.

    Attributes:
        conv: The Conv.
        past: Columns of earlier steps, ``[batch, channels, width]``.
        new: Columns of this step, ``[batch, channels, length]``.
        width: Number of cached columns.
        reach: Number of earlier columns that a result reads: ``(kernel - 1) * dilation``.
        dilation: Dilation of the kernel.
        activations: Elementwise operators before the slice that drops results of cached columns.
        made: Results that the first activation reads; without activations, those that the slice reads.
        output: Results of the new columns.
        presents: The last ``width`` columns of the concatenation.
    """

    conv: Node
    past: Value
    new: Value
    width: int
    reach: int
    dilation: int
    activations: tuple[Node, ...]
    made: Value
    output: Value
    presents: tuple[Value, ...]


def find_causal_convs(model: Model) -> dict[str, CausalConv | Miss]:
    """Return the causal convolution, or the miss, of each candidate by name, for `Model.analysis`.

    Candidates are grouped convolutions over a Concat of columns.
    """
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
        raise MissError(joined, f"{len(joined.inputs)} tensors are concatenated, expected past and new columns")
    past, new = joined.source(0), joined.source(1)
    width, kernel, dilation = fixed_size(past, COLUMNS), *_kernel(conv)
    reach = (kernel - 1) * dilation
    if width is None or width < reach or not reach:
        raise MissError(joined, f"{past.name} has {width} columns, but a result reads {reach} of earlier steps")
    if {past.element_type, new.element_type, conv.source(1).element_type} != {"f32"}:
        raise MissError(conv, f"columns are of type {new.element_type}, not f32")
    shape = sizes.shape(new)
    length = shape[COLUMNS] if shape is not None else None
    whole = joined.outputs[0]
    readers = [use.node for use in graph.uses(whole) if use.node != conv and use.node.op not in SHAPE_READERS]
    for reader in readers:
        if not _keeps_last(model, reader, number(width), length):
            raise MissError(reader, f"{reader.op} also reads the window, but does not slice its last {width} columns")
    before, behind = _padding(conv, reach)
    made, left = conv.outputs[0], width - reach + before
    if behind:
        made = _first_columns(model, made, None if length is None else add(length, number(left)))
    activations, output = _cut_off(model, made, length, left)
    if output is None and left:
        raise MissError(conv, f"results of {left} columns before the new ones are not sliced off")
    presents = tuple(reader.outputs[0] for reader in readers)
    return CausalConv(conv, past, new, width, reach, dilation, activations, made, output or made, presents)


def _padding(conv: Node, reach: int) -> tuple[int, int]:
    """Return the number of padded columns at the start and at the end.

    Raises:
        MissError: The start has neither 0 nor ``reach``, or only the end is padded.
    """
    before, behind = conv.attributes.get("pads", ()) or (0, 0)
    if before not in {0, reach} or (behind and not before):
        raise MissError(conv, f"it pads by {before} and {behind} columns")
    return before, behind


def _first_columns(model: Model, value: Value, count: Expr | None) -> Value:
    """Return the only slice of ``value``, which drops results of padding at the end.

    Raises:
        MissError: Other columns are read, too.
    """
    graph, sizes = model.graph, model.analysis(infer_sizes)
    users = [use.node for use in graph.uses(value) if use.node.op not in SHAPE_READERS]
    cuts = fold_cuts(graph, users[0]) if len(users) == 1 else ()
    shape = sizes.shape(users[0].outputs[0]) if len(cuts) == 1 else None
    is_first = len(cuts) == 1 and (cuts[0].axis, cuts[0].start, cuts[0].step) == (COLUMNS, 0, 1)
    if shape is None or not is_first or shape[COLUMNS] is not count:
        raise MissError(graph.producer(value), "results of padding at the end are not sliced off first")
    return users[0].outputs[0]


def _cut_off(model: Model, made: Value, length: Expr | None, left: int) -> tuple[tuple[Node, ...], Value | None]:
    """Return activations of ``made`` and the slice of new columns; ``None`` without that slice."""
    graph, activations, members = model.graph, list[Node](), {made}
    while True:
        users = {use.node.index: use.node for value in members for use in graph.uses(value)}
        readers = [users[index] for index in sorted(users) if users[index] not in activations]
        readers = [reader for reader in readers if reader.op not in SHAPE_READERS]
        if len(readers) == 1 and _keeps_last(model, readers[0], length, number(left)):
            return tuple(activations), readers[0].outputs[0]
        following = [reader for reader in readers if reader.op in _ACTIVATIONS and members.issuperset(reader.inputs)]
        if not following:
            return (), None
        activations.append(following[0])
        members.add(following[0].outputs[0])


def _kernel(conv: Node) -> tuple[int, int]:
    """Return size and dilation of the kernel, in columns.

    Raises:
        MissError: The convolution is not depthwise, has strides or pads by itself.
    """
    attributes, weight = conv.attributes, conv.source(1)
    shape = weight.shape or ()
    if len(shape) != 3 or not isinstance(shape[2], int) or shape[1] != 1 or shape[0] != attributes["group"]:
        raise MissError(
            conv, f"the weight has shape {list(shape)}, not one kernel for each of {attributes['group']} channels"
        )
    steps = set(attributes.get("strides", ()))
    if not steps <= {1} or attributes.get("auto_pad", b"NOTSET") not in {b"NOTSET", b"VALID"}:
        raise MissError(conv, "it has auto_pad, or strides other than 1")
    return shape[2], next(iter(attributes.get("dilations", ())), 1)


def _keeps_last(model: Model, node: Node, count: Expr | None, left: Expr | None) -> bool:
    """Return whether ``node`` slices the last ``count`` columns, or all from ``left`` on."""
    cuts, content = fold_cuts(model.graph, node), model.analysis(infer_sizes).content(node.input(1))
    if len(cuts) != 1 or cuts[0].axis != COLUMNS or cuts[0].step != 1 or not cuts[0].reaches_end or content is None:
        return False
    return (count is not None and content == (negative(count),)) or (left is not None and content == (left,))
