"""Round numbers to types of 16 bits."""

from __future__ import annotations


def rounded(element_type: str, value: float) -> float:
    """Return a number rounded to f16 or bf16."""
    import numpy

    from graphpass.ir.folding import typed

    if element_type == "f16":
        with numpy.errstate(over="ignore"):
            return float(numpy.float16(value))
    return float(typed(numpy.array([value], "float32"), "bf16")[0])
