"""The pass `expose-position-ids`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from graphpass.analysis.attention.rotary import positions_of_angles
from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.analysis.equations.activations import find_activations, past_lengths
from graphpass.analysis.symbolic.expressions import Expr, add, subtract
from graphpass.analysis.symbolic.folding import fold_cuts, fold_elements, fold_scalar
from graphpass.analysis.symbolic.sizes import Sizes, infer_sizes
from graphpass.engine.passes import Done, Pass, Skipped
from graphpass.ir.graph import Graph, Node, Use, Value
from graphpass.ir.inputs import token_input
from graphpass.ir.model import Model
from graphpass.ir.operators import CASTS, COMPARISONS, COPIES, MOVES, POSITIONWISE, SLICES
from graphpass.ir.rewriter import Handle, Rewriter
from graphpass.ir.values import is_activation
from graphpass.passes.attention.table_rows import gather_rows, is_table

_POSITIONS = "position_ids"

#: Operators between positions and the angles of a rotary embedding.
_TOWARDS_ANGLES = (
    MOVES | SLICES | {"Broadcast", "Add", "Concat", "Einsum", "Gather", "MatMul", "Multiply", "ScatterNDUpdate"}
)

#: Operators between positions and the factors by which they scale activations.
_TOWARDS_FACTORS = POSITIONWISE | MOVES

#: Operators between the largest position and the angles of the table that it selects.
_TOWARDS_SELECTION = (POSITIONWISE | MOVES | COMPARISONS.keys() | {"Concat", "MatMul"}) - {"Cos", "Sin"}


@dataclass(frozen=True)
class ExposePositionIds(Pass[Model]):
    """Read positions from an input instead of computing them from past or mask.

    Two uses require the input ``position_ids``: paged attention (openvino.genai's default backend), whose caches have
    no length to read, and edits of a cache, which change positions. Rotary and learned embeddings, factors that depend
    on positions, and the largest position where it selects frequencies, read the input; masks still compare slots.

    An unused input of that name, as in optimum-intel's exports of qwen3_5_text, is treated as missing.

    Options:
        always: Add the input, unused, also to models that use no positions, such as models with ALiBi and hybrid
            models. NPUW feeds it to all models, and fails with ``unordered_map::at`` if it is missing
            (``llm_infer_request.cpp``).

    Shapes:
        position_ids i64 ``[batch, length]``

    Before:
        Range(past length, past length + length) -> Unsqueeze(0) -> rotary embedding
    After:
        position_ids (Parameter) -> rotary embedding

    Before:
        Range(0, length) -> Unsqueeze(0) -> Add(., past length) -> rotary embedding
    After:
        position_ids (Parameter) -> rotary embedding

    Before:
        Range(0, length) -> Add(., length of attention_mask) -> Subtract(., length) -> Unsqueeze(0) -> rotary embedding
    After:
        position_ids (Parameter) -> rotary embedding

    Before:
        CumSum(attention_mask) - 1 -> Maximum(., 0) -> Slice(last columns) -> rotary embedding
    After:
        position_ids (Parameter) -> rotary embedding

    Before:
        Range -> Unsqueeze(0) -> Add(., 1) -> Divide -> Floor -> Log -> Multiply(query, .)
    After:
        position_ids (Parameter) -> Add(., 1) -> Divide -> Floor -> Log -> Multiply(query, .)

    Before:
        Range -> Unsqueeze(0) -> ReduceMax -> Greater(., length) -> Select(., frequencies, frequencies) -> Cos
    After:
        position_ids (Parameter) -> ReduceMax -> Greater(., length) -> Select(., frequencies, frequencies) -> Cos

    Before:
        Range -> Unsqueeze -> Tile(., [1, 1, n]) -> GatherElements(table [1, positions, n])
    After:
        position_ids (Parameter) -> Gather(table [positions, n])

    Before:
        Range -> Unsqueeze -> Reshape(., [-1]) -> Gather(table [positions, n]) -> Reshape(., [1, -1, n])
    After:
        position_ids (Parameter) -> Gather(table [positions, n])

    Before:
        Slice([[0, 1, 2 ...]], past length, past length + length) -> Gather(table [positions, n])
    After:
        position_ids (Parameter) -> Gather(table [positions, n])

    Before:
        Range -> Gather(table [positions, n]) -> Unsqueeze(0)
    After:
        position_ids (Parameter) -> Gather(table [positions, n])
    """

    name = "expose-position-ids"

    always: bool = False

    def run(self, model: Model) -> Done | Skipped:
        graph = model.graph
        known = graph.parameters.get(_POSITIONS)
        if known is not None and graph.uses(known):
            return Skipped("the model has an input position_ids")
        gather_rows(model)
        graph = model.graph
        sizes = model.analysis(infer_sizes)
        uses = [use for positions in _counted_rows(model) for use in _embedding_uses(graph, sizes, positions)]
        rewriter = model.rewriter()
        if not uses:
            if not self.always or known is not None:
                return Done()
            if any(node.op == "Range" for node in positions_of_angles(graph)):
                return Skipped("the model computes its positions in a form that is not recognized")
        # Plugins drop an input that had no users when the model was created (2026.4.1).
        rewriter.drop_input(_POSITIONS)
        sources = _Sources(rewriter)
        for embedding in uses:
            node, port = embedding.use.node, embedding.use.port
            rewriter.redirect(node, port, sources.of(embedding, node.source(port).element_type))
        rewriter.forget_shapes(_computed_by(model, uses))
        for reshape, shape in _single_rows(graph, uses):
            rewriter.set_shape(reshape, shape)
        rewriter.finish()
        return Done({"uses of positions": len(uses)} if uses else {"inputs": 1})


def _counted_rows(model: Model) -> list[Value]:
    """Return positions ``[1, length]`` counted by the cache, or ``[batch, length]`` counted by the mask."""
    graph = model.graph
    rows = [row for node in graph.of_op("CumSum") for row in _last_columns(graph, node)]
    sizes = model.analysis(infer_sizes)
    pasts = _past_lengths(model, sizes)
    rows += [
        node.outputs[0]
        for node in graph.of_op("Slice")
        if _slices_counts(graph, node) and (sizes.content(node.input(1)) or (None,))[0] in pasts
    ]
    for node in graph.of_op("Range"):
        start = sizes.content(node.inputs[0])
        if start is not None and fold_scalar(graph, node.inputs[2]) == 1:
            rows += _rows_after(graph, sizes, node.outputs[0], start[0], pasts)
    return rows


def _slices_counts(graph: Graph, node: Node) -> bool:
    """Return whether the node slices columns of ``[[0, 1, 2 ...]]``."""
    table, kept = graph.constant(node.source(), limit=1 << 20), fold_cuts(graph, node)
    if table is None or table.ndim != 2 or [(cut.axis, cut.step) for cut in kept] != [(1, 1)]:
        return False
    return bool((table == [[*range(table.shape[1])]]).all())


def _past_lengths(model: Model, sizes: Sizes) -> set[Expr]:
    """Return symbolic past lengths: the cache's, and the mask's less the new tokens."""
    graph, lengths = model.graph, past_lengths(model, analyze_caches(model))
    total, new = (sizes.shape(value) for value in (graph.parameters.get("attention_mask"), token_input(graph)))
    if total is not None and new is not None and len(total) == 2:
        lengths.add(subtract(total[1], new[1]))
    return lengths


def _rows_after(graph: Graph, sizes: Sizes, counted: Value, start: Expr, pasts: set[Expr]) -> list[Value]:
    """Return rows, see `_makes_row`, of consecutive positions that start at the past length."""
    rows: list[Value] = []
    pending = [(counted, start)]
    while pending:
        value, first = pending.pop()
        if first in pasts and (value.rank or 0) > 1:
            rows.append(value)
            continue
        for use in graph.uses(value):
            node = use.node
            moved = sizes.content(node.inputs[1 - use.port]) if node.op in {"Add", "Subtract"} else None
            if _makes_row(node):
                pending.append((node.outputs[0], first))
            elif moved is not None and len(moved) == 1 and (node.op == "Add" or use.port == 0):
                moves = add if node.op == "Add" else subtract
                pending.append((node.outputs[0], moves(first, moved[0])))
    return rows


def _last_columns(graph: Graph, counted: Node) -> list[Value]:
    """Return the last columns, for the new tokens, of the mask's running sum less 1."""
    source = graph.look_through(counted.source(), CASTS)
    if graph.producer(source).op != "Parameter" or source.rank != 2:
        return []
    columns: list[Value] = []
    pending = [(counted.outputs[0], 0.0)]
    while pending:
        value, offset = pending.pop()
        for use in graph.uses(value):
            node = use.node
            number = fold_scalar(graph, node.inputs[1]) if len(node.inputs) > 1 and use.port == 0 else None
            # A product with the mask changes only positions of padding, to which no token attends.
            by_mask = node.op == "Multiply" and source in {
                graph.look_through(side, CASTS) for side in node.inputs if side is not None
            }
            if node.op == "Convert" or by_mask or (node.op == "Maximum" and number == 0):
                pending.append((node.outputs[0], offset))
            elif node.op in {"Add", "Subtract"} and number is not None:
                pending.append((node.outputs[0], offset + (number if node.op == "Add" else -number)))
            elif node.op == "Slice" and use.port == 0 and offset == -1 and _ends_last(graph, node):
                columns.append(node.outputs[0])
    return columns


def _ends_last(graph: Graph, node: Node) -> bool:
    cuts = fold_cuts(graph, node)
    return [cut.axis for cut in cuts] == [1] and cuts[0].reaches_end


def _embedding_uses(graph: Graph, sizes: Sizes, positions: Value) -> list[_EmbeddingUse]:
    uses: list[_EmbeddingUse] = []
    pending: list[tuple[Value, tuple[Node, ...]]] = [(positions, ())]
    while pending:
        value, laid_out = pending.pop()
        for use in graph.uses(value):
            # These nodes may also feed a mask, which still compares slots.
            if use.node.op == "Convert" or (not laid_out and _repeats_row(sizes, use)):
                pending.append((use.node.outputs[0], laid_out))
            elif use.node.op == "Unsqueeze" and use.port == 0:
                pending.append((use.node.outputs[0], (*laid_out, use.node)))
            elif _leads_to_embedding(graph, use) or _leads_to_factor(graph, use) or _selects_angles(graph, use):
                uses.append(_EmbeddingUse(use, laid_out, *_axes_around(positions)))
    return uses


def _repeats_row(sizes: Sizes, use: Use) -> bool:
    """Return whether a Tile or Broadcast repeats ``[1, length]`` for each of the batch."""
    row, rows = sizes.shape(use.node.source()), sizes.shape(use.node.outputs[0])
    if use.node.op not in COPIES or use.port or row is None or rows is None:
        return False
    return len(row) == len(rows) == 2 and row[1] == rows[1]


@dataclass(frozen=True, slots=True)
class _EmbeddingUse:
    """A use of positions by an embedding, through Unsqueezes.

    Attributes:
        use: The use by the embedding.
        laid_out: Unsqueezes between the positions and the use, in order.
        leading: Number of axes before the batch.
        trailing: Number of axes after the length.
    """

    use: Use
    laid_out: tuple[Node, ...]
    leading: int
    trailing: int


class _Sources:
    """Writes the input in each layout and element type once."""

    def __init__(self, rewriter: Rewriter) -> None:
        self._rewriter, self._write = rewriter, rewriter.under(_POSITIONS)
        parameter = rewriter.input(_POSITIONS, "i64", [None, None])
        self._made: dict[tuple[tuple[int, ...], str], Handle] = {((), "i64"): parameter}

    def of(self, embedding: _EmbeddingUse, element_type: str) -> Handle:
        made, source = self._made, self._made[(), "i64"]
        axes = (*range(embedding.leading), *range(embedding.leading + 2, embedding.leading + 2 + embedding.trailing))
        done: tuple[int, ...] = tuple(-1 - axis for axis in axes)
        if (done, "i64") not in made:
            made[done, "i64"] = self._write.op("Unsqueeze", source, axes=axes, label="laid_out")
        for step in embedding.laid_out:
            source = made[done, "i64"]
            done = (*done, step.index)
            if (done, "i64") not in made:
                made[done, "i64"] = self._rewriter.clone(step, {0: source}, f"{_POSITIONS}/{step.name}")
        if (done, element_type) not in made:
            name = "/".join([*(step.name for step in embedding.laid_out[-1:]), element_type])
            made[done, element_type] = self._write.op("Convert", made[done, "i64"], to=element_type, label=name)
        return made[done, element_type]


def _makes_row(node: Node) -> bool:
    """Return whether ``node`` makes a vector ``[1 or batch, length]``, ``[1, 1, length]`` or ``[1, length, 1]``."""
    shape = node.outputs[0].shape if node.outputs else None
    if node.op == "Broadcast":
        return (node.source().rank, node.outputs[0].rank) == (1, 2)
    if node.op not in {"Unsqueeze", "Reshape"} or shape is None or len(shape) not in {2, 3}:
        return False
    return {*shape[:-1]} == {1} or (shape[0], shape[-1]) == (1, 1)


def _axes_around(positions: Value) -> tuple[int, int]:
    """Return the number of axes before the batch and after the length, see `_makes_row`."""
    shape = positions.shape or ()
    trailing = int(len(shape) > 2 and shape[-1] == 1 and shape[1] != 1)
    return max(len(shape) - 2 - trailing, 0), trailing


def _leads_to_embedding(graph: Graph, use: Use) -> bool:
    return any(
        following.node.op in {"Cos", "Sin"}
        or (following.node.op == "Gather" and following.port == 1 and is_table(graph, following.node.inputs[0]))
        for following in _onward(graph, use)
    )


def _leads_to_factor(graph: Graph, use: Use) -> bool:
    """Return whether ``use`` reaches products with activations, but no comparison."""

    def outputs(use: Use) -> tuple[Value, ...]:
        passes = use.node.op in _TOWARDS_FACTORS and not _scales_activations(graph, use)
        return use.node.outputs if passes else ()

    uses = [use, *graph.forward(outputs(use), outputs)]
    is_compared = any(reached.node.op in COMPARISONS for reached in uses)
    return not is_compared and any(_scales_activations(graph, reached) for reached in uses)


def _selects_angles(graph: Graph, use: Use) -> bool:
    """Return whether the use is a maximum of all positions that only selects frequencies."""
    if use.node.op != "ReduceMax" or use.port != 0 or use.node.outputs[0].rank != 0:
        return False

    def outputs(use: Use) -> tuple[Value, ...]:
        return use.node.outputs if use.node.op in _TOWARDS_SELECTION else ()

    ends = {reached.node.op for reached in graph.forward(use.node.outputs, outputs)} - _TOWARDS_SELECTION
    return len(ends) > 0 and ends <= {"Cos", "Sin"}


def _scales_activations(graph: Graph, use: Use) -> bool:
    """Return whether the node scales each token's vector by one element."""
    node = use.node
    if node.op not in {"Multiply", "Divide"} or (node.op == "Divide" and use.port == 0):
        return False
    number, vector = node.source(use.port), node.source(1 - use.port)
    size = (vector.shape or (None,))[-1]
    is_vector = (vector.rank or 0) > 2 and isinstance(size, int) and size > 1
    return is_vector and (number.shape or (0,))[-1] == 1 and is_activation(graph, vector)


def _single_rows(graph: Graph, uses: list[_EmbeddingUse]) -> Iterator[tuple[Node, list[int]]]:
    """Yield Reshapes of positions to batch size 1, with a target for any batch."""

    def outputs(use: Use) -> tuple[Value, ...]:
        return tuple(value for value in use.node.outputs if value.shape and value.shape[0] == 1)

    seen: set[int] = set()
    starts = [value for embedding in uses for value in outputs(embedding.use)]
    for use in [*(embedding.use for embedding in uses), *graph.forward(starts, outputs)]:
        node = use.node
        target = fold_elements(graph, node.input(1)) if node.op == "Reshape" and use.port == 0 else None
        source = node.source().shape if target is not None else None
        if target is None or not source or len(source) < 3 or node.index in seen:
            continue
        seen.add(node.index)
        sizes = [int(size) for size in target]
        if source[0] == sizes[0] == 1 and not {-1, 0}.isdisjoint(sizes):
            yield node, [0, 0, *sizes[2:]] if sizes[1] == -1 else [0, *sizes[1:]]


def _computed_by(model: Model, uses: list[_EmbeddingUse]) -> list[Value]:
    """Return values computed from positions alone, whose batch size differs from 1."""
    graph, activations = model.graph, model.analysis(find_activations)

    def outputs(use: Use) -> tuple[Value, ...]:
        return () if use.node.index in activations else use.node.outputs

    starts = [value for embedding in uses for value in outputs(embedding.use)]
    return [*starts, *(value for use in graph.forward(starts, outputs) for value in outputs(use))]


def _onward(graph: Graph, use: Use) -> Iterator[Use]:
    """Yield ``use`` and the downstream uses, up to the angles."""

    def outputs(use: Use) -> tuple[Value, ...]:
        node = use.node
        # A Tile by the batch repeats one row; the input already has one row for each of the batch.
        repeats = fold_elements(graph, node.input(1)) if node.op == "Tile" and use.port == 0 else None
        is_open = repeats is not None and len(repeats) > 1 and repeats[0] == 1
        return node.outputs if node.op in _TOWARDS_ANGLES or is_open else ()

    yield use
    yield from graph.forward(outputs(use), outputs)
