"""The pass `lower-for-htp`."""

from __future__ import annotations

from dataclasses import dataclass

from graphpass.analysis.pattern import Match, op, var
from graphpass.analysis.rules import RewriteRule, rewrite
from graphpass.analysis.symbolic.folding import fold_scalar, is_bounded
from graphpass.dialects.attributes import native_attributes
from graphpass.dialects.onnx.model import OnnxModel
from graphpass.engine.passes import Done, Pass
from graphpass.ir.graph import Graph, Value
from graphpass.ir.values import HALVES, REALS, fixed_size
from graphpass.ir.writer import Handle, Operand, Writer

#: Least operand of Exp. Qualcomm's HTP computes Exp incorrectly from -88 on; Exp(-80) is 1.8e-35, and 0 in f16.
_LEAST = -80.0

#: Largest rank of ScatterElements.
_AXES = 4


@dataclass(frozen=True)
class LowerForHtp(Pass[OnnxModel]):
    """Replace operators that Qualcomm's HTP lacks or computes incorrectly.

    Observed with onnxruntime-qnn 2.7.0, emulated:

    | operator | on HTP | replacement |
    | --- | --- | --- |
    | Convert of f16 to boolean | has no kernel | LogicalNot(Equal(x, 0)) |
    | Exp of values from -2000 to -88 | 131008 or its negative | Exp(Clip(x, -80)) |
    | Multiply by the Reciprocal of a Sqrt | the compiler fails with error 1002 | Divide |
    | ReduceSumSquare | has no kernel | ReduceSum(Multiply(x, x)) |
    | ScatterElements of one row into five axes | has no kernel | Select of the row's elements |
    | SoftPlus | error of up to 7 %, incorrect below -88 | Relu(x) + Log(1 + Exp(Clip(-Abs(x), -80))) |
    | Trilu of floats | has no kernel | Select of the triangle's elements |

    Shapes:
        x f32 or f16, of any shape

    Before:
        Multiply(x, Reciprocal(Sqrt(y)))
    After:
        Divide(x, Sqrt(y))

    Before:
        Trilu(x [.., m, n], k) of the lower triangle
    After:
        Select(Range(n) <= Unsqueeze(Range(m)) + k, x, 0)
    """

    name = "lower-for-htp"
    dialect = "onnx"

    def run(self, model: OnnxModel) -> Done:
        rewriter = model.rewriter()
        counts = rewrite(rewriter, _RULES)
        rewriter.finish()
        return Done(counts)


def _why_no_index(graph: Graph, value: Value) -> str | None:
    is_number = value.rank == 0 and fold_scalar(graph, value) is not None
    return None if is_number else "it writes several rows"


def _comparison(write: Writer, match: Match) -> Handle:
    zero = write.number(0.0, match["x"].element_type, "zero")
    return write.op("LogicalNot", write.op("Equal", match["x"], zero, label="is_zero"))


def _of_floats(_graph: Graph, match: Match) -> bool:
    return match["x"].element_type in REALS


def _clipped(write: Writer, operand: Operand, element_type: str) -> Handle:
    return write.op("Clip", operand, write.number(_LEAST, element_type, "least"), label="bounded")


def _softplus(write: Writer, match: Match) -> Handle:
    x, kind = match["x"], match["x"].element_type
    power = write.op("Exp", _clipped(write, write.op("Negative", write.op("Abs", x)), kind))
    logarithm = write.op("Log", write.op("Add", power, write.number(1.0, kind, "one"), label="total"))
    return write.op("Add", write.op("Relu", x), logarithm)


def _has_constant_diagonal(graph: Graph, match: Match) -> bool:
    diagonal = match.node.input(1)
    is_known = diagonal is None or fold_scalar(graph, diagonal) is not None
    return is_known and _of_floats(graph, match) and match["x"].rank is not None


def _triangle(write: Writer, match: Match) -> Handle:
    x, rank = match["x"], match["x"].rank or 0
    shape = write.op("ShapeOf", x, label="shape")
    rows, columns = (_range(write, write.size(x, axis, "size", shape)) for axis in (rank - 2, rank - 1))
    last = write.op("Unsqueeze", rows, axes=[1], label="row")
    if (diagonal := match.node.input(1)) is not None:
        last = write.op("Add", last, diagonal, label="last")
    comparison = "GreaterEqual" if match.node.attributes["upper"] else "LessEqual"
    kept = write.op(comparison, columns, last, label="kept")
    return write.op("Select", kept, x, write.number(0.0, x.element_type, "zero"))


def _writes_one_row(_graph: Graph, match: Match) -> bool:
    axis = int(match.node.attributes["axis"]) % (match["x"].rank or 1)
    is_plain = match.node.attributes.get("reduction", b"none") in {"none", b"none"}
    return is_plain and (match["x"].rank or 0) > _AXES and fixed_size(match["row"], axis) == 1


def _row(write: Writer, match: Match) -> Handle:
    x = match["x"]
    axis = int(match.node.attributes["axis"]) % (x.rank or 1)
    indices = _range(write, write.size(x, axis, "size"))
    is_row = write.op("Equal", indices, match["index"], label="is_row")
    if more := list(range(1, (x.rank or 0) - axis)):
        is_row = write.op("Unsqueeze", is_row, axes=more, label="rows")
    return write.op("Select", is_row, match["row"], x)


def _range(write: Writer, size: Handle) -> Handle:
    zero, one = (write.number(number, "i64", name) for number, name in ((0, "zero"), (1, "one")))
    return write.op("Range", zero, write.op("Squeeze", size, axes=[0], label="end"), one, label="places")


def _square_sum(write: Writer, match: Match) -> Handle:
    attributes = native_attributes(match.node)
    axes = match.node.input(1) or write.constant(list(attributes["axes"]), "axes")
    square = write.op("Multiply", match["x"], match["x"], label="square")
    return write.op("ReduceSum", square, axes, domain="", keepdims=int(attributes.get("keepdims", 1)))


_RULES = (
    RewriteRule(
        "casts to boolean",
        op.Convert(var("x")),
        _comparison,
        lambda _graph, match: match["x"].element_type in HALVES and match.node.outputs[0].element_type == "boolean",
    ),
    RewriteRule(
        "quotients",
        op.Multiply(var("x"), op.Reciprocal(op.Sqrt(..., name="root"))),
        lambda write, match: write.op("Divide", match["x"], match.nodes["root"].outputs[0]),
        _of_floats,
    ),
    RewriteRule(
        "rows written",
        op.ScatterElementsUpdate(var("x"), op.Broadcast(var("index").where(_why_no_index), ...), var("row"), ...),
        _row,
        _writes_one_row,
    ),
    RewriteRule(
        "sums of squares",
        op.ReduceSumSquare(var("x"), ...),
        _square_sum,
        lambda _graph, match: match.node.input(1) is not None or "axes" in native_attributes(match.node),
    ),
    RewriteRule("SoftPlus", op.SoftPlus(var("x")), _softplus, _of_floats),
    RewriteRule(
        "exponents",
        op.Exp(var("x")),
        lambda write, match: write.op("Exp", _clipped(write, match["x"], match["x"].element_type)),
        lambda graph, match: _of_floats(graph, match) and not is_bounded(graph, match["x"], _LEAST),
    ),
    RewriteRule("triangles", op.Trilu(var("x"), ...), _triangle, _has_constant_diagonal),
)
