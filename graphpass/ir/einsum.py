"""Read equations of Einsum."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from graphpass.ir.graph import Node


def labels(equation: str) -> tuple[list[str], str] | None:
    """Return the axes of operands and result; ``None`` for an equation with an ellipsis."""
    operands, arrow, result = equation.replace(" ", "").partition("->")
    if "." in equation:
        return None
    once = sorted(label for label in {*operands} - {","} if operands.count(label) == 1)
    return operands.split(","), result if arrow else "".join(once)


@dataclass(frozen=True, slots=True)
class EinsumProduct:
    """An Einsum of two operands that is a matrix product.

    Attributes:
        operands: Axes of both operands.
        result: Axes of the result.
        sizes: Size of each axis; ``None`` if not fixed.
    """

    operands: tuple[str, str]
    result: str
    sizes: dict[str, int | None]

    @classmethod
    def of(cls, node: Node) -> EinsumProduct | None:
        """Return the product that an Einsum computes; ``None`` if it is not a matrix product."""
        axes = labels(str(node.attributes["equation"]))
        shapes = [value.shape for value in node.sources]
        if axes is None or len(axes[0]) != 2 or len(shapes) != 2:
            return None
        (left, right), result = axes
        is_repeated = any(len(set(names)) < len(names) for names in (left, right, result))
        is_summed_alone = any(name not in result for name in set(left) ^ set(right))
        sizes: dict[str, int | None] = {}
        for names, shape in zip((left, right), shapes, strict=True):
            if shape is None or len(shape) != len(names):
                return None
            for name, size in zip(names, shape, strict=True):
                sizes[name] = size if isinstance(size, int) else sizes.get(name)
        return None if is_repeated or is_summed_alone else cls((left, right), result, sizes)

    @property
    def batch(self) -> str:
        """Return the axes that both operands and the result share."""
        return "".join(name for name in self.result if all(name in names for names in self.operands))

    @property
    def summed(self) -> str:
        """Return the axes that the product contracts."""
        left, right = self.operands
        return "".join(name for name in left if name in right and name not in self.result)

    def own(self, port: int) -> str:
        """Return the axes of the result that the other operand lacks."""
        return "".join(name for name in self.result if name not in self.operands[1 - port])

    def joined(self, names: str) -> int | None:
        """Return the product of the sizes of axes; ``None`` if one is not fixed."""
        sizes = [self.sizes[name] for name in names]
        return None if None in sizes else math.prod(size for size in sizes if size is not None)


def axis_order(names: str, wanted: Sequence[str]) -> list[int]:
    """Return the index of each wanted axis in ``names``.

    Args:
        names: Axes of a tensor, one letter each.
        wanted: Letters of these axes in another order, as for a Transpose.
    """
    return [names.index(name) for name in wanted]
