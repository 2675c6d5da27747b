"""The pass `expose-position-ids`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from graphpass.analysis.attention.rotary import positions_of_angles
from graphpass.analysis.caches.masks import find_elements
from graphpass.analysis.equations.activations import find_activations
from graphpass.analysis.equations.positions import PositionRow, find_position_rows
from graphpass.analysis.symbolic.elements import Elements, UnknownError
from graphpass.analysis.symbolic.expressions import ONE, ZERO
from graphpass.analysis.symbolic.folding import fold_elements
from graphpass.analysis.symbolic.sizes import Sizes, infer_sizes
from graphpass.analysis.symbolic.step import TOTAL
from graphpass.engine.passes import Done, Pass, Skipped
from graphpass.ir.graph import Graph, Node, Use, Value
from graphpass.ir.model import Model
from graphpass.ir.operators import COMPARISONS, COPIES, MOVES, POSITIONWISE, SLICES
from graphpass.ir.rewriter import Rewriter
from graphpass.ir.values import is_activation
from graphpass.ir.writer import Handle
from graphpass.passes.attention.position_vectors import find_vector_uses
from graphpass.passes.attention.table_rows import gather_rows, is_table

_POSITIONS = "position_ids"

#: Operators between positions and the angles of a rotary embedding.
_TOWARDS_ANGLES = (
    MOVES
    | SLICES
    | {"Broadcast", "Add", "Concat", "Einsum", "Gather", "MatMul", "Minimum", "Multiply", "ScatterNDUpdate"}
)

#: Operators between positions and the factors by which they scale activations.
_TOWARDS_FACTORS = POSITIONWISE | MOVES

#: Operators between the largest position and the angles of the table that it selects.
_TOWARDS_SELECTION = (POSITIONWISE | MOVES | COMPARISONS.keys() | {"Concat", "MatMul"}) - {"Cos", "Sin"}

#: Operators that lay out positions for their use.
_LAYS_OUT = COPIES | {"Convert", "Unsqueeze"}


@dataclass(frozen=True)
class ExposePositionIds(Pass[Model]):
    """Read positions from an input instead of computing them from past or mask.

    Two uses require the input ``position_ids``: paged attention (openvino.genai's default backend), whose caches have
    no length to read, and edits of a cache, which change positions. Rotary and learned embeddings, factors that depend
    on positions, and the largest position or the length if it selects frequencies, read the input; masks still compare
    slots.

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
        Range -> Add(., 1) -> Divide -> Floor -> Log -> Reshape(., [1, length, 1, 1]) -> Multiply(query, .)
    After:
        position_ids (Parameter) -> Add(., 1) -> Divide -> Floor -> Log -> Reshape(., [0, 0, 1, 1])
        -> Multiply(query, .)

    Before:
        Range -> Unsqueeze(0) -> ReduceMax -> Greater(., length) -> Select(., frequencies, frequencies) -> Cos
    After:
        position_ids (Parameter) -> ReduceMax -> Greater(., length) -> Select(., frequencies, frequencies) -> Cos

    Before:
        Greater(length of attention_mask, length) -> Select(., Gather(table, Range), Gather(table, Range))
    After:
        Greater(ReduceMax(position_ids) + 1, length) -> Select(., Gather(table, position_ids), ...)

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
        uses = [use for row in _first_rows(model) for use in _embedding_uses(graph, sizes, row)]
        vectors = list(find_vector_uses(model))
        rewriter = model.rewriter()
        if not uses and not vectors:
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
        for use in _selecting_lengths(model) if uses else ():
            rewriter.redirect(use.node, use.port, sources.length(use.node.source(use.port)))
        for vector in vectors:
            node, port = vector.use.node, vector.use.port
            rewriter.redirect(node, port, sources.rows(node.source(port).element_type))
            for reshape in vector.reshapes:
                rewriter.set_shape(reshape, [0, 0, *[1] * ((reshape.outputs[0].rank or 2) - 2)])
        factors = [value for vector in vectors for value in vector.computed]
        rewriter.forget_shapes([*_computed_by(model, uses), *factors])
        for reshape, shape in _single_rows(graph, uses):
            rewriter.set_shape(reshape, shape)
        rewriter.finish()
        count = len(uses) + len(vectors)
        return Done({"uses of positions": count} if count else {"inputs": 1})


def _first_rows(model: Model) -> list[PositionRow]:
    """Return counted positions in the layout in which they are computed first."""
    graph, rows = model.graph, {row.value: row for row in model.analysis(find_position_rows)}
    return [
        row
        for value, row in rows.items()
        if (producer := graph.producer(value)).op not in _LAYS_OUT or producer.input(0) not in rows
    ]


def _embedding_uses(graph: Graph, sizes: Sizes, row: PositionRow) -> list[_EmbeddingUse]:
    uses: list[_EmbeddingUse] = []
    pending: list[tuple[Value, tuple[Node, ...]]] = [(row.value, ())]
    while pending:
        value, laid_out = pending.pop()
        for use in graph.uses(value):
            # These nodes may also feed a mask, which still compares slots.
            if use.node.op == "Convert" or (not laid_out and _repeats_row(sizes, use)):
                pending.append((use.node.outputs[0], laid_out))
            elif use.node.op == "Unsqueeze" and use.port == 0:
                pending.append((use.node.outputs[0], (*laid_out, use.node)))
            elif _leads_to_embedding(graph, use) or _leads_to_factor(graph, use) or _selects_angles(graph, use):
                uses.append(_EmbeddingUse(use, row, laid_out))
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
        row: The positions.
        laid_out: Unsqueezes between the positions and the use, in order.
    """

    use: Use
    row: PositionRow
    laid_out: tuple[Node, ...]


class _Sources:
    """Writes the input in each layout and element type once."""

    def __init__(self, rewriter: Rewriter) -> None:
        self._rewriter, self._write = rewriter, rewriter.under(_POSITIONS)
        parameter = rewriter.input(_POSITIONS, "i64", [None, None])
        self._made: dict[tuple[tuple[int, ...], str], Handle] = {((), "i64"): parameter}

    def of(self, embedding: _EmbeddingUse, element_type: str) -> Handle:
        made, source = self._made, self._made[(), "i64"]
        row = embedding.row
        axes = tuple(axis for axis in range(row.value.rank or 0) if axis not in {row.batch, row.length})
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

    def rows(self, element_type: str) -> Handle:
        """Return the input ``[batch, length]`` in an element type."""
        made = self._made
        if ((), element_type) not in made:
            made[(), element_type] = self._write.op("Convert", made[(), "i64"], to=element_type, label=element_type)
        return made[(), element_type]

    def length(self, value: Value) -> Handle:
        """Return the largest position plus one, in the rank and element type of ``value``."""
        largest = self._write.op("ReduceMax", self._made[(), "i64"], axes=[0, 1], keep=False)
        whole = self._write.op("Add", largest, 1)
        placed = self._write.op("Unsqueeze", whole, axes=[0]) if value.rank else whole
        return self._write.op("Convert", placed, to=value.element_type)


def _selecting_lengths(model: Model) -> Iterator[Use]:
    """Yield uses of the number of positions that only select rotary tables or frequencies."""
    graph, elements = model.graph, model.analysis(find_elements)
    for node in graph.of_op(*COMPARISONS):
        for port, value in enumerate(node.sources):
            if value.rank in {0, 1} and _is_length(elements, value) and _only_selects(graph, node.outputs):
                yield Use(node, port)


def _is_length(elements: Elements, value: Value) -> bool:
    try:
        return elements.shape(value) in {(), (ONE,)} and elements.of(value, (ZERO,) * (value.rank or 0)) is TOTAL
    except UnknownError:
        return False


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
    is_largest = use.node.op == "ReduceMax" and use.port == 0 and use.node.outputs[0].rank == 0
    return is_largest and _only_selects(graph, use.node.outputs)


def _only_selects(graph: Graph, values: tuple[Value, ...]) -> bool:
    """Return whether ``values`` reach only cosines, sines and tables of them."""

    def outputs(use: Use) -> tuple[Value, ...]:
        return use.node.outputs if use.node.op in _TOWARDS_SELECTION and not _selects_rows(graph, use) else ()

    ends = [use for use in graph.forward(values, outputs) if not outputs(use)]
    return bool(ends) and all(use.node.op in {"Cos", "Sin"} or _selects_rows(graph, use) for use in ends)


def _selects_rows(graph: Graph, use: Use) -> bool:
    """Return whether ``use`` is the condition of a Select between rows of tables."""
    rows = [graph.producer(value) for value in use.node.sources[1:]]
    is_condition = use.node.op == "Select" and use.port == 0
    return is_condition and all(node.op == "Gather" and is_table(graph, node.source()) for node in rows)


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
