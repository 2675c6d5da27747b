"""Find inputs with the number of last tokens whose logits are computed."""

from __future__ import annotations

from collections.abc import Iterable

from graphpass.analysis.symbolic.folding import fold_scalar
from graphpass.ir.graph import Graph, Use, Value
from graphpass.ir.inputs import KEPT_LOGITS
from graphpass.ir.types import is_fixed

#: Operators between the input and the start of a slice.
_KEPT = frozenset({"Convert", "Reshape", "Squeeze", "Unsqueeze"})

_START, _STOP, _LONGEST = 1, 2, 2**31 - 1


def kept_logits(graph: Graph) -> frozenset[str]:
    """Return the inputs of fixed size that choose a number of last tokens.

    0 chooses all tokens. The inputs have a conventional name, or all users slice from the negated input to the end:
    ``hidden[:, -n:]``, as transformers 4.45 to 4.49 have it. Exporters call an input that was not named after a user,
    ``onnx::Neg_7``.

    Args:
        graph: A graph.
    """
    fixed = {name: value for name, value in graph.parameters.items() if is_fixed(value.shape)}
    return frozenset(name for name, value in fixed.items() if name in KEPT_LOGITS or _starts_slices(graph, value))


def _starts_slices(graph: Graph, count: Value) -> bool:
    def onwards(use: Use) -> Iterable[Value]:
        return use.node.outputs if use.node.op in _KEPT or use.node.op == "Negative" else ()

    uses = [use for use in graph.forward([count], onwards) if use.node.op not in _KEPT]
    slices = [use for use in uses if use.node.op != "Negative"]
    return len(uses) > len(slices) > 0 and all(_is_unbounded(graph, use) for use in slices)


def _is_unbounded(graph: Graph, use: Use) -> bool:
    stop = use.node.input(_STOP)
    if use.node.op != "Slice" or use.port != _START or stop is None:
        return False
    last = fold_scalar(graph, stop)
    return last is not None and last >= _LONGEST
