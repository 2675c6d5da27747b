"""Products and activation of one expert, or of all experts in batched products."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

from graphpass.analysis.equations.quantized_blocks import QuantizedBlocks, dequantized_blocks, packed_blocks
from graphpass.analysis.experts.activation import Function
from graphpass.analysis.symbolic.folding import fold_cuts, fold_scalar
from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.miss import Miss, MissError, or_miss
from graphpass.ir.operators import ELEMENTWISE, KEEPS_ORDER, NORMS, RESHAPES, SLICES, SPLITS
from graphpass.ir.values import fixed_size

#: Maximum number of operators between the products of an expert.
_LIMIT = 64

#: Operators between a stored bias and its Add.
_OF_BIAS = RESHAPES | {"Convert"}


@dataclass(frozen=True, slots=True)
class Product:
    """Columns of a product with a constant.

    Attributes:
        weight: The stored weight, ``[inputs, outputs]``, or ``[experts, inputs, outputs]``.
        is_turned: Whether inputs and outputs are swapped in ``weight``.
        bias: The stored bias of all columns; ``None`` without one.
        columns: Start, end and step of the columns that are read.
        inputs: Number of inputs.
        blocks: Quantization of ``weight``; ``None`` if it is not quantized.
    """

    weight: Value
    is_turned: bool
    bias: Value | None
    columns: tuple[int, int, int]
    inputs: int
    blocks: QuantizedBlocks | None = None

    @property
    def element_type(self) -> str:
        """Return the type of the dequantized weight."""
        return self.weight.element_type if self.blocks is None else self.blocks.scales.element_type

    @property
    def is_stacked(self) -> bool:
        """Return whether ``weight`` stacks the weights of all experts."""
        return self.weight.rank == 3 and not (self.blocks is not None and self.blocks.is_packed)

    @property
    def outputs(self) -> int:
        """Return the number of columns that are read."""
        return len(range(*self.columns))

    @property
    def form(self) -> tuple[object, ...]:
        """Return a key of sizes and types, without the values."""
        blocks = None if self.blocks is None else self.blocks.form
        return self.weight.shape, self.is_turned, self.bias is None, self.columns, self.element_type, blocks


@dataclass(frozen=True, slots=True)
class Expert:
    """One expert, or all experts in batched products.

    Attributes:
        products: The products of the rows, in execution order, then the product of ``function``.
        function: The elementwise function of the first products.
        rows: The rows that the first products read.
        index: The expert of each row, if its weights are gathered; otherwise ``None``.
        form: A key of structure, sizes and types, without the values of weights.
    """

    products: tuple[Product, ...]
    function: Function
    rows: Value
    index: Value | None
    form: tuple[object, ...]


def read_expert(graph: Graph, result: Value, *, gathered: bool = False, piece: Piece | None = None) -> Expert:
    """Return the expert that computes ``result``.

    Args:
        graph: The graph.
        result: The result of the expert.
        gathered: Whether each row gathers the weights of its expert.
        piece: Returns one expert's product and its rows, from a Concat of the products of all experts.

    Raises:
        MissError: ``result`` is not computed by products with constants and one elementwise function between them.
    """
    return _Reader(graph, gathered, piece).expert(result)


Piece: TypeAlias = "Callable[[Node], tuple[Node, Value]]"


class _Reader:
    def __init__(self, graph: Graph, gathered: bool, piece: Piece | None) -> None:
        self._graph, self._gathered = graph, gathered
        self._piece = piece or (lambda node: (node, node.source() if node.inputs else node.outputs[0]))
        self._index: Value | None = None

    def expert(self, result: Value) -> Expert:
        graph = self._graph
        last, middle = self._product(result)
        if last.columns != (0, _size(graph, result, -1), 1):
            raise MissError(graph.producer(result), "only some columns of an expert's result are read")
        products: dict[tuple[Product, Value], set[Value]] = {}
        nodes: set[int] = set()
        pending, seen = [middle], set()
        while pending:
            value = pending.pop()
            if value in seen or fold_scalar(graph, value) is not None:
                continue
            seen.add(value)
            node, product = graph.producer(value), or_miss(self._product)(value)
            if not isinstance(product, Miss):
                products.setdefault(product, set()).add(value)
            elif node.op in ELEMENTWISE - NORMS:
                nodes.add(node.index)
                pending += node.sources
            else:
                raise MissError(product.node, product.reason)
            if len(seen) > _LIMIT:
                raise MissError(node, f"more than {_LIMIT} operators between the products of an expert")
        if len({rows for _, rows in products}) != 1:
            raise MissError(graph.producer(result), f"the {len(products)} products of an expert read different rows")
        ordered = sorted(products, key=lambda product: min((value.node, value.port) for value in products[product]))
        leaves = tuple(frozenset(products[product]) for product in ordered)
        function = Function(middle, tuple(graph.nodes[index] for index in sorted(nodes)), leaves)
        found_all = (*(product for product, _ in ordered), last)
        form = function.form(graph), tuple(product.form for product in found_all)
        return Expert(found_all, function, ordered[0][1], self._index, form)

    def _product(self, value: Value) -> tuple[Product, Value]:
        """Return the product that computes ``value``, and the rows that it reads.

        Raises:
            MissError: At the first node that is not part of a product with weights of an expert.
        """
        graph, columns = self._graph, None
        node = self._producer(value)
        if node.op in SLICES | SPLITS:
            columns = _columns(graph, node, value)
            node = self._producer(node.source())
        bias = None
        if node.op == "Add":
            biases = [value for value in node.sources if self._is_bias(value)]
            if len(biases) != 1:
                raise MissError(node, "expected the sum of a product and one constant")
            bias, adds = biases[0], node
            node = self._producer(next(value for value in node.sources if value != bias))
        node, rows = self._piece(node)
        if node.op == "MatMulNBits" and not self._gathered:
            return self._packed(node, rows, bias, columns)
        if node.op != "MatMul" or node.attributes["transpose_a"]:
            raise MissError(node, f"{node.op} is not a product with weights of an expert")
        weight, is_turned = node.source(1), bool(node.attributes["transpose_b"])
        if self._gathered and not is_turned and fixed_size(weight, -1) == 1:
            # The product of weights [outputs, inputs] and rows as columns.
            rows, weight, is_turned = weight, rows, True
        width, inputs = (_size(graph, weight, axis) for axis in ((-2, -1) if is_turned else (-1, -2)))
        stored, is_turned, blocks = self._weight(weight, is_turned)
        made = Product(stored, is_turned, None, columns or (0, width, 1), inputs, blocks)
        if bias is not None:
            made = replace(made, bias=self._bias(adds, bias, made, width))
        if self._gathered:
            rows = graph.look_through(rows, {"Squeeze", "Unsqueeze"})
            if rows.rank != 2:
                raise MissError(node, "expected rows [tokens, hidden]")
        return made, rows

    def _packed(
        self, node: Node, rows: Value, bias: Value | None, columns: tuple[int, int, int] | None
    ) -> tuple[Product, Value]:
        """Return the product of a MatMulNBits, whose weight is ``[outputs, inputs]``.

        Raises:
            MissError: The product has two biases.
        """
        width, inputs = node.attributes["N"], node.attributes["K"]
        blocks = packed_blocks(self._graph, node)
        made = Product(node.source(1), True, None, columns or (0, width, 1), inputs, blocks)
        own = node.input(5)
        if own is not None and bias is not None:
            raise MissError(node, "the product has two biases")
        bias = bias if own is None else own
        if bias is not None:
            made = replace(made, bias=self._bias(node, bias, made, width))
        return made, rows

    def _producer(self, value: Value) -> Node:
        """Return the producer of ``value``; an axis of size 1 of gathered products is skipped."""
        graph = self._graph
        return graph.producer(graph.look_through(value, {"Squeeze", "Unsqueeze"}) if self._gathered else value)

    def _weight(self, weight: Value, is_turned: bool) -> tuple[Value, bool, QuantizedBlocks | None]:
        """Return the stored constant, whether outputs come first, and its quantization.

        Raises:
            MissError: The weight is not a constant matrix, or a stack of matrices.
        """
        graph = self._graph
        node = graph.producer(weight)
        if node.op == "Transpose":
            order = node.attributes.get("order", ())
            if order == (*range(len(order) - 2), len(order) - 1, len(order) - 2):
                weight, is_turned = node.source(), not is_turned
        if self._gathered:
            weight = self._source(weight)
        node, blocks = graph.producer(weight), None
        if node.op == "DequantizeLinear":
            weight, blocks = node.source(), dequantized_blocks(graph, node, -1 if is_turned else -2)
        elif node.op == "Convert":
            weight = node.source()
        ranks = {3} if self._gathered else {2, 3}
        if graph.producer(weight).op != "Constant" or weight.rank not in ranks:
            raise MissError(graph.producer(weight), "weights of an expert are not a constant matrix or stack")
        return weight, is_turned, blocks

    def _source(self, gathered: Value) -> Value:
        """Return the stacked tensor of all experts from which each row gathers.

        Raises:
            MissError: The weights are not gathered along axis 0, or not by the index of the others.
        """
        graph, node = self._graph, self._graph.producer(gathered)
        if node.op not in {"Gather", "GatherND"} or node.attributes.get("axis", 0) != 0:
            raise MissError(node, "expected a gather of experts' weights along axis 0")
        # GatherND with indices [rows, 1] gathers along axis 0.
        index, count = node.source(1), node.attributes.get("batch_dims", 0)
        is_flat = index.rank == 1 if node.op == "Gather" else index.rank == 2 and fixed_size(index, 1) == 1
        index = graph.look_through(index, KEEPS_ORDER)
        if not is_flat or count or self._index not in {None, index}:
            raise MissError(node, "weights of an expert are not all gathered by one index")
        self._index = index
        return node.source()

    def _is_bias(self, value: Value) -> bool:
        graph = self._graph
        if self._gathered:
            return graph.producer(value).op in {"Gather", "GatherND"}
        stored = graph.look_through(value, _OF_BIAS)
        return graph.producer(stored).op == "Constant" and fold_scalar(graph, stored) is None

    def _bias(self, node: Node, bias: Value, product: Product, width: int) -> Value:
        graph, count = self._graph, fixed_size(product.weight, 0)
        source = self._source(bias) if self._gathered else bias
        if self._gathered:
            wanted: tuple[tuple[int | None, ...], ...] = ((count, width),)
        else:
            wanted = ((count, 1, width),) if product.is_stacked else ((width,), (1, width))
        stored = graph.look_through(source, _OF_BIAS)
        if source.shape not in wanted or stored.element_type != product.element_type:
            raise MissError(node, "expected a bias with one element for each column, in the type of the product")
        if graph.producer(stored).op != "Constant":
            raise MissError(node, "the bias of the product is not constant")
        return stored


def _columns(graph: Graph, node: Node, part: Value) -> tuple[int, int, int]:
    source = node.source()
    last, width = (source.rank or 0) - 1, _size(graph, source, -1)
    if node.op in SPLITS:
        sizes = [_size(graph, value, -1) for value in node.outputs]
        if node.attributes.get("axis") == last:
            start = sum(sizes[: part.port])
            return start, start + sizes[part.port], 1
    else:
        cuts = fold_cuts(graph, node)
        if len(cuts) == 1 and cuts[0].axis == last and cuts[0].keeps_axis and None not in (cuts[0].start, cuts[0].step):
            cut = cuts[0]
            start, stop, step = slice(cut.start, cut.stop, cut.step).indices(width)
            if step > 0:
                return start, stop, step
    raise MissError(node, "expected a slice of the columns of a product")


def _size(graph: Graph, value: Value, axis: int) -> int:
    size = fixed_size(value, axis)
    if size is None:
        raise MissError(graph.producer(value), f"{value.name} does not have a fixed size along axis {axis}")
    return size
