"""Experts of a mixture that each compute a piece of all tokens, sorted by the experts that were chosen for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphpass.dialects.openvino.rewrite import integers, named
from graphpass.ir.operators import KEEPS_ORDER
from graphpass.passes.experts.expert_layers import (
    EXPERT_LIMIT,
    SPREAD,
    ExpertLayer,
    Step,
    behind,
    is_plain,
    is_weight,
    is_zero,
    key_of,
    number_of,
    readers,
    same,
    stored_weight,
)

if TYPE_CHECKING:
    import openvino

__all__ = ["find_sorted_experts"]


def find_sorted_experts(sort: openvino.Node) -> ExpertLayer | None:
    """The layer whose tokens are sorted by ``sort``; ``None`` where it is of another form."""
    chosen = _sorted(sort)
    if chosen is None:
        return None
    slots = chosen.get_partial_shape()[1].get_length()
    for row in readers(sort.output(1), "Divide"):
        if number_of(row.input_value(1)) == slots:
            for scatter in readers(row.output(0), "ScatterElementsUpdate"):
                layer = _layer(scatter, row.output(0), sort, chosen)
                if layer is not None:
                    return layer
    return None


def _sorted(sort: openvino.Node) -> openvino.Output | None:
    """The choices ``[tokens, k]`` that ``sort`` sorts in ascending order, all of them."""
    given = sort.get_attributes()
    flat = sort.input_value(0)
    chosen = behind(flat, KEEPS_ORDER)
    length = behind(sort.input_value(1), {*KEEPS_ORDER, "Gather"})
    if (given["mode"], given["sort"], len(flat.get_partial_shape())) != ("min", "value", 1):
        return None
    if length.get_node().get_type_name() != "ShapeOf" or not same(length.get_node().input_value(0), flat):
        return None
    shape = chosen.get_partial_shape()
    is_choice = chosen.get_node().get_type_name() == "TopK" and chosen.get_index() == 1
    return chosen if is_choice and len(shape) == 2 and shape[1].is_static else None


def _layer(
    scatter: openvino.Node, row: openvino.Output, sort: openvino.Node, chosen: openvino.Output
) -> ExpertLayer | None:
    """What ``scatter`` adds up, where it adds each sorted row to the token of that ``row``."""
    adds = scatter.get_attributes()["reduction"] == "sum" and number_of(scatter.input_value(3)) == 0
    is_by_row = adds and same(behind(scatter.input_value(1), SPREAD), row) and is_zero(scatter.input_value(0))
    weighted = behind(scatter.input_value(2), {"Broadcast"}).get_node()
    if not is_by_row or weighted.get_type_name() != "Multiply":
        return None
    for place in (0, 1):
        weights = _weights(weighted.input_value(1 - place), sort, chosen)
        finder = _Bodies(chosen, row)
        bodies = finder.find(weighted.input_value(place)) if weights is not None else None
        if weights is None or bodies is None or finder.tokens is None:
            continue
        if scatter.get_output_partial_shape(0)[1] == finder.tokens.get_partial_shape()[1]:
            return ExpertLayer(finder.tokens, chosen, weights, bodies, scatter.output(0))
    return None


def _weights(value: openvino.Output, sort: openvino.Node, chosen: openvino.Output) -> openvino.Output | None:
    """The weights ``[tokens, k]`` that ``value`` holds in sorted order, ``[tokens * k, 1]``."""
    shape = value.get_partial_shape()
    taken = behind(value, KEEPS_ORDER).get_node()
    if len(shape) != 2 or shape[1] != 1 or taken.get_type_name() != "Gather" or number_of(taken.input_value(2)) != 0:
        return None
    flat = taken.input_value(0)
    weights = behind(flat, KEEPS_ORDER)
    is_flat = len(flat.get_partial_shape()) == 1 and weights.get_partial_shape() == chosen.get_partial_shape()
    return weights if is_flat and same(behind(taken.input_value(1), KEEPS_ORDER), sort.output(1)) else None


class _Bodies:
    """Takes apart what is computed of the sorted rows, in which products of all experts are joined again each time.

    Attributes:
        tokens: ``[tokens, hidden]``, of which the rows were taken.
    """

    def __init__(self, chosen: openvino.Output, row: openvino.Output) -> None:
        self.tokens: openvino.Output | None = None
        self._chosen = chosen
        self._row = row
        self._places: dict[str, int] = {}
        self._bodies: list[list[Step]] = []

    def find(self, end: openvino.Output) -> tuple[tuple[Step, ...], ...] | None:
        """What each expert computes up to ``end``; ``None`` where they do not all compute the same."""
        place = self._place(end)
        forms = {tuple(step.form for step in body) for body in self._bodies}
        is_last = place is not None and self._bodies and place == len(self._bodies[0]) - 1
        return tuple(tuple(body) for body in self._bodies) if is_last and len(forms) == 1 else None

    def _place(self, value: openvino.Output) -> int | None:
        """The step that computes ``value``, after all that it needs; -1 for the rows."""
        key = key_of(value)
        if key in self._places:
            return self._places[key]
        node = value.get_node()
        kind = node.get_type_name()
        if kind == "Gather":
            place = self._rows(node)
        elif kind == "Concat":
            place = self._product(value, None)
        elif kind in {"Split", "VariadicSplit"}:
            place = self._product(node.input_value(0), value)
        else:
            place = self._step(node)
        if place is not None:
            self._places[key] = place
        return place

    def _rows(self, gather: openvino.Node) -> int | None:
        tokens = gather.input_value(0)
        shape = tokens.get_partial_shape()
        is_row = same(behind(gather.input_value(1), KEEPS_ORDER), self._row) and number_of(gather.input_value(2)) == 0
        if not is_row or len(shape) != 2 or shape[1].is_dynamic:
            return None
        self.tokens = tokens
        return -1

    def _step(self, node: openvino.Node) -> int | None:
        sources = [value for value in node.input_values() if not is_weight(value)]
        if node.get_type_name() == "MatMul" or len(sources) < len(node.input_values()) or not is_plain(node, sources):
            return None
        places = [self._place(value) for value in sources]
        if None in places:
            return None
        return self._add([Step(node, tuple(place for place in places if place is not None))] * len(self._bodies))

    def _product(self, joined: openvino.Output, part: openvino.Output | None) -> int | None:
        """The product of each expert with its weight, or with the rows of the weight that give ``part``."""
        pieces = [value.get_node() for value in joined.get_node().input_values()]
        if not all(piece.get_type_name() == "MatMul" and _is_product(piece) for piece in pieces):
            return None
        cuts = [piece.input_value(0).get_node() for piece in pieces]
        source = cuts[0].input_value(0)
        if not all(same(cut.input_value(0), source) and self._is_piece(cut, at) for at, cut in enumerate(cuts)):
            return None
        columns = None if part is None else _columns(part)
        place = self._place(source)
        if place is None or (part is not None and columns is None) or len(self._bodies or pieces) != len(pieces):
            return None
        self._bodies = self._bodies or [[] for _ in pieces]
        weights = [_weight(piece, columns) for piece in pieces]
        return self._add([Step(piece, (place, weight)) for piece, weight in zip(pieces, weights, strict=True)])

    def _add(self, steps: list[Step]) -> int | None:
        if len(self._bodies[0]) >= EXPERT_LIMIT:
            return None
        for body, step in zip(self._bodies, steps, strict=True):
            body.append(step)
        return len(self._bodies[0]) - 1

    def _is_piece(self, cut: openvino.Node, number: int) -> bool:
        """Whether ``cut`` takes the rows of expert ``number``, which follow those of the ones before it."""
        if cut.get_type_name() != "Slice" or len(cut.inputs()) < 5:
            return False
        if (number_of(cut.input_value(3)), number_of(cut.input_value(4))) != (1, 0):
            return False
        ends = [self._counted(cut.input_value(port)) for port in (1, 2)]
        return ends == [list(range(number)), list(range(number + 1))]

    def _counted(self, value: openvino.Output) -> list[int] | None:
        """The experts whose rows ``value`` counts."""
        value = behind(value, KEEPS_ORDER)
        node = value.get_node()
        if node.get_type_name() == "Add":
            left, right = (self._counted(one) for one in node.input_values())
            return None if left is None or right is None else sorted(left + right)
        if node.get_type_name() == "Gather":
            expert = number_of(node.input_value(1))
            return [expert] if expert is not None and self._is_count(node.input_value(0)) else None
        return [] if number_of(value) == 0 else None

    def _is_count(self, value: openvino.Output) -> bool:
        """Whether ``value`` counts how often each expert was chosen, ``[experts]``: the sum of 1 where it was."""
        total = behind(value, {"Convert"}).get_node()
        if total.get_type_name() != "ReduceSum" or number_of(total.input_value(1)) != 0:
            return False
        marks = behind(total.input_value(0), {"Convert"}).get_node()
        if marks.get_type_name() != "ScatterElementsUpdate" or marks.get_attributes()["reduction"] != "none":
            return False
        is_chosen = same(behind(marks.input_value(1), {"Convert"}), self._chosen)
        one = behind(marks.input_value(2), {"Broadcast", "Convert", "Slice"})
        by_expert = number_of(marks.input_value(3)) in {1, -1} and is_zero(marks.input_value(0))
        return is_chosen and by_expert and number_of(one) == 1


def _is_product(matmul: openvino.Node) -> bool:
    return is_weight(matmul.input_value(1)) and is_plain(matmul, [matmul.input_value(0)])


def _columns(part: openvino.Output) -> tuple[int, int] | None:
    """From which column to which ``part`` of two dimensions was cut."""
    split = part.get_node()
    widths = [output.get_partial_shape()[1] for output in split.outputs()]
    if number_of(split.input_value(1)) not in {1, -1} or any(width.is_dynamic for width in widths):
        return None
    sizes = [width.get_length() for width in widths]
    start = sum(sizes[: part.get_index()])
    return start, start + sizes[part.get_index()]


def _weight(matmul: openvino.Node, columns: tuple[int, int] | None) -> openvino.Node:
    """The weight of a product, or what of it gives these columns."""
    from openvino import opset13

    weight: openvino.Node = matmul.input_value(1).get_node()
    if columns is None:
        return weight
    name = f"{matmul.get_friendly_name()}/weight/{columns[0]}"
    axis = 0 if matmul.get_attributes()["transpose_b"] else 1
    ends = (
        integers([number], f"{name}/{label}")
        for number, label in zip((*columns, 1, axis), ("from", "to", "step", "axis"), strict=True)
    )
    cut = named(opset13.slice(stored_weight(weight), *ends), name)
    wanted = weight.get_output_element_type(0)
    return cut if cut.get_output_element_type(0) == wanted else named(opset13.convert(cut, wanted), f"{name}/wide")
