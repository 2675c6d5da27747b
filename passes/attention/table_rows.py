"""Gathers of whole rows of tables, such as learned positions, in one form."""

from __future__ import annotations

from functools import partial

from graphpass.analysis.pattern import Match, op, var
from graphpass.analysis.rules import RewriteRule, rewrite
from graphpass.analysis.symbolic.folding import fold_elements
from graphpass.analysis.symbolic.sizes import Sizes, infer_sizes
from graphpass.ir.graph import Graph, Value
from graphpass.ir.model import Model
from graphpass.ir.operators import ARITHMETIC, CASTS
from graphpass.ir.writer import Handle, Writer

#: Gathers a row of a table element by element, as GPT-J does.
_BY_ELEMENT = op.GatherElements(var("table"), op.Tile(var("row"), ...) | op.Broadcast(var("row"), ...))

#: Gathers rows of a table by index tuples of size 1, as CodeGen does.
_ROWS = op.GatherND(var("table"), var("row"))

#: Gathers rows of a table by flattened indices, as XGLM does.
_FLATTENED = op.Reshape(op.Gather(var("table"), op.Reshape(var("row"), ...), ..., axis=0), ...)

#: Gathers rows of a table by a vector, and adds the axis of the batch after that, as RoFormer does.
_BY_VECTOR = op.Unsqueeze(op.Gather(var("table"), var("row"), ..., axis=0), ..., name="axes")

#: Gathers rows of a table by a vector, and adds them to those of each sequence of the batch, as Marian does.
_ADDED = op.Gather(var("table"), var("row"), ..., axis=0)

#: Gathers from a table of one repeated number, as BERT does for the types of tokens.
_UNIFORM = op.GatherElements(var("table"), var("row"), ...)


def gather_rows(model: Model) -> None:
    """Replace GatherElements, GatherND and Gathers by vectors of whole table rows by Gather."""
    rewriter = model.rewriter()
    keeps_layout = partial(_keeps_layout, model.analysis(infer_sizes))
    rules = (
        RewriteRule("rows", _UNIFORM, _repeat, _is_uniform),
        RewriteRule("rows", _BY_ELEMENT, _gather, _gathers_elements),
        RewriteRule("rows", _ROWS, _gather, _gathers_rows),
        RewriteRule("rows", _FLATTENED, _gather_unflattened, keeps_layout),
        RewriteRule("rows", _BY_VECTOR, _gather_unsqueezed, _gathers_by_vector),
        RewriteRule("rows", _ADDED, _gather_row, _adds_to_rows),
    )
    rewrite(rewriter, rules)
    rewriter.finish()


def _gathers_elements(graph: Graph, match: Match) -> bool:
    table, row, index = match["table"], match["row"], match.node.inputs[1]
    return (
        graph.producer(table).op == "Constant"
        and (table.rank, match.node.attributes.get("axis")) == (3, 1)
        and (table.shape or ())[::2] == (1, (index.shape or ())[-1] if index is not None else None)
        and (row.shape or ())[::2] == (1, 1)
    )


def _gathers_rows(graph: Graph, match: Match) -> bool:
    row, batched = match["row"], match.node.attributes.get("batch_dims", 0)
    return is_table(graph, match["table"]) and not batched and (row.shape or (0,))[-1] == 1


def _gather(write: Writer, match: Match) -> Handle:
    table = match["table"]
    rows = table if table.rank == 2 else write.op("Squeeze", table, axes=[0])
    return write.op("Gather", rows, write.op("Squeeze", match["row"], axes=[(match["row"].rank or 0) - 1]), axis=0)


def _keeps_layout(sizes: Sizes, graph: Graph, match: Match) -> bool:
    """Return whether the result is a Gather of table rows in the indices' shape."""
    indices, table = sizes.shape(match["row"]), sizes.shape(match["table"])
    if indices is None or table is None or not is_table(graph, match["table"]):
        return False
    return sizes.shape(match.node.outputs[0]) == (*indices, *table[1:])


def _gather_unflattened(write: Writer, match: Match) -> Handle:
    return write.op("Gather", match["table"], match["row"], axis=0)


def _is_uniform(graph: Graph, match: Match) -> bool:
    table = fold_elements(graph, match["table"])
    return table is not None and table.size > 0 and bool((table == table.flat[0]).all())


def _repeat(write: Writer, match: Match) -> Handle:
    table = match["table"]
    number = write.op("ReduceMax", table, axes=[*range(table.rank or 0)], keep=True)
    return write.op("Broadcast", number, write.op("ShapeOf", match["row"]))


def _gathers_by_vector(graph: Graph, match: Match) -> bool:
    axes = match.nodes["axes"].attributes.get("axes", ())
    return match["row"].rank == 1 and is_table(graph, match["table"]) and tuple(axes) in {(0,), (0, 1)}


def _gather_unsqueezed(write: Writer, match: Match) -> Handle:
    rows = _gather_row(write, match)
    inner = match.nodes["axes"].attributes["axes"][1:]
    return write.op("Unsqueeze", rows, axes=inner) if inner else rows


def _adds_to_rows(graph: Graph, match: Match) -> bool:
    if match["row"].rank != 1 or not is_table(graph, match["table"]):
        return False
    reached = graph.forward(match.node.outputs, lambda use: use.node.outputs if use.node.op in CASTS else ())
    uses = [use for use in reached if use.node.op not in CASTS]
    return all(use.node.op in ARITHMETIC and use.node.source(1 - use.port).rank == 3 for use in uses)


def _gather_row(write: Writer, match: Match) -> Handle:
    return write.op("Gather", match["table"], write.op("Unsqueeze", match["row"], axes=[0]), axis=0)


def is_table(graph: Graph, value: Value | None) -> bool:
    """Return whether a tensor is a constant matrix, possibly converted.

    Args:
        graph: The graph.
        value: The tensor; ``None``, an absent operand, is none.
    """
    table = graph.look_through(value, CASTS | {"Squeeze"}) if value is not None else None
    return value is not None and value.rank == 2 and table is not None and graph.producer(table).op == "Constant"
