"""Assertions on the result of a pass."""

from __future__ import annotations

import difflib
from collections import Counter
from dataclasses import replace

from graphpass.ir.model import Model
from graphpass.ir.text.canonical import canonical
from graphpass.ir.text.parser import parse_text
from graphpass.ir.text.printer import statements_of
from graphpass.ir.text.statements import Statement, TensorType


def assert_text(model: Model, expected: str) -> None:
    """Assert that the graph of a model equals a text.

    Names of computed values, the order of lines and digests of constants are ignored. Types are compared if the text
    states them; symbols of dimensions are ignored in OpenVINO IR, which has none.

    Args:
        model: The model.
        expected: The text, as `graphpass.text` prints it.

    Raises:
        AssertionError: The graph differs; the message is a diff.
        UsageError: GP270, the text is not a graph.

    Examples:
        >>> from graphpass.testing import assert_text, parse_model
        >>> text = '''%x = Parameter : f32[n]
        ... %y = Relu(%x)
        ... Result(%y) {name=y}'''
        >>> assert_text(parse_model(text), text)
    """
    actual, reference = (
        canonical(statements, types=True) for statements in (statements_of(model.graph), parse_text(expected))
    )
    # Types that the text omits are not compared.
    stated = {statement.results: bool(statement.types) for statement in reference}
    actual = tuple(statement if stated.get(statement.results) else replace(statement, types=()) for statement in actual)
    if model.dialect == "openvino":
        reference = tuple(
            replace(statement, types=tuple(map(_without_symbols, statement.types))) for statement in reference
        )
    left, right = (list(map(str, side)) for side in (reference, actual))
    if left != right:
        raise AssertionError("\n".join(difflib.unified_diff(left, right, "expected", "found", lineterm="")))


def _without_symbols(type_: TensorType) -> TensorType:
    shape = None if type_.shape is None else tuple(size if isinstance(size, int) else None for size in type_.shape)
    return TensorType(type_.element_type, shape)


def assert_fused(model: Model, **counts: int) -> None:
    """Assert the number of operators of each type: ``assert_fused(model, Swish=2, Sigmoid=0)``.

    Args:
        model: The model.
        counts: Expected number by operator name, as in the text form, without domain.

    Raises:
        AssertionError: A number differs.

    Examples:
        >>> from graphpass.testing import assert_fused, run, tiny_model
        >>> assert_fused(run(tiny_model("llama", "openvino"), "fuse-attention"), ScaledDotProductAttention=2, Softmax=0)
    """
    kinds = Counter(model.graph.spelling(node).kind.rpartition(".")[2] for node in model.graph.nodes)
    differing = {op: kinds[op] for op, count in counts.items() if kinds[op] != count}
    if differing:
        wrong = ", ".join(f"{op}: {count} instead of {counts[op]}" for op, count in differing.items())
        present = ", ".join(f"{op} {count}" for op, count in sorted(kinds.items()) if op != "Constant")
        raise AssertionError(f"{wrong}; the model has {present}")


def assert_same(reference: Model, candidate: Model, *, steps: int = 4, proven: bool = False) -> None:
    """Assert that two decoders compute the same outputs, by `graphpass.verify`.

    Args:
        reference: The source model.
        candidate: The model to compare.
        steps: Greedy steps after each prefill.
        proven: Whether to require that both are proven equal for every input, padding excepted.

    Raises:
        AssertionError: The outputs differ, or equality is not proven; the message is the report.
        UnsupportedError: A model cannot be run.

    Examples:
        >>> from graphpass.testing import assert_same, run, tiny_model
        >>> model = tiny_model("llama", "openvino")
        >>> assert_same(model, run(model, "fuse-attention"), steps=1, proven=True)
    """
    from graphpass.verify import compare_within

    comparison = compare_within(reference, candidate, steps=steps)
    if not comparison.passed or (proven and not comparison.is_proven):
        raise AssertionError(comparison.summary())


def plain(statement: Statement) -> Statement:
    """Return a statement without digest and comments, and without types of computed values."""
    is_source = statement.kind in {"Constant", "Parameter", "ReadValue"}
    return replace(statement, digest="", remarks=(), types=statement.types if is_source else ())
