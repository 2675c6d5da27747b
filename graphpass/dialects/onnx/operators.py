"""Translation of neutral operators to ONNX."""

from __future__ import annotations

from typing import Any

from graphpass.dialects.onnx.tensors import element_code
from graphpass.errors import UnsupportedError
from graphpass.ir.operators import REDUCTIONS
from graphpass.ir.rewriter import Rewriter
from graphpass.ir.writer import Handle

#: Neutral names of ONNX operators that differ from their native names.
NEUTRAL_NAMES = {
    "And": "LogicalAnd",
    "Cast": "Convert",
    "Ceil": "Ceiling",
    "Div": "Divide",
    "Expand": "Broadcast",
    "GreaterOrEqual": "GreaterEqual",
    "HardSwish": "HSwish",
    "LessOrEqual": "LessEqual",
    "Max": "Maximum",
    "Min": "Minimum",
    "Mul": "Multiply",
    "Neg": "Negative",
    "Not": "LogicalNot",
    "Or": "LogicalOr",
    "Pow": "Power",
    "ScatterElements": "ScatterElementsUpdate",
    "ScatterND": "ScatterNDUpdate",
    "Shape": "ShapeOf",
    "Softplus": "SoftPlus",
    "Split": "VariadicSplit",
    "Sub": "Subtract",
    "Where": "Select",
    "Xor": "LogicalXor",
}

_NATIVE_NAMES = {neutral: native for native, neutral in NEUTRAL_NAMES.items()}

#: Operators whose axes are an input, with the first opset in which they are.
AXES_INPUTS = dict.fromkeys(REDUCTIONS, 18) | {"CumSum": 11, "ReduceSum": 13, "Squeeze": 13, "Unsqueeze": 13}

#: Operators whose axes are an attribute in early opsets and this input in later ones.
AXES_PORTS = dict.fromkeys(REDUCTIONS, 1) | {"Slice": 3, "Squeeze": 1, "Unsqueeze": 1}

#: Omitted outputs: inference kernels do not compute mean and deviation.
LEFT_OUT = {"SkipLayerNormalization": (1, 2), "SkipSimplifiedLayerNormalization": (1, 2)}

#: From this version on, axes and lengths are inputs of Squeeze, Unsqueeze and Split, as they are written here.
FIRST_OPSET = 13

#: The first opset with Swish. Before it QuickGelu of ONNX Runtime (1.31) is equivalent, which OpenVINO's frontend
#: (2026.4.1) supports in f32 only.
SWISH = 24


def check_opset(opset: int, what: str) -> None:
    """Check that a model imports opset 13 or later.

    Args:
        opset: Imported version of the default operator set.
        what: Start of the message, such as the name of the node to create.

    Raises:
        UnsupportedError: GP340, the opset is older.
    """
    if opset < FIRST_OPSET:
        raise UnsupportedError(
            "GP340", f"{what}: expected opset {FIRST_OPSET} or later, got {opset}", "run upgrade-opset first"
        )


def translated(
    rewriter: Rewriter, opset: int, kind: str, inputs: list[Handle | None], name: str, attributes: dict[str, Any]
) -> tuple[str, str | None, list[Handle | None], dict[str, Any]]:
    """Return operator, domain, inputs and attributes in ONNX; see `NodeMaker.make`.

    Args:
        rewriter: Rewriter that creates additional inputs, such as axes.
        opset: Imported version of the default operator set.
        kind: Neutral name; the native name if ``attributes`` has a ``domain``.
        inputs: Operands, ``None`` if omitted.
        name: Name of the node, the prefix for names of additional inputs.
        attributes: Neutral attributes, or native ones with a ``domain``; the dictionary is modified.
    """
    domain: str | None = attributes.pop("domain", None)
    if domain is not None:
        return kind, domain, inputs, attributes
    op = _NATIVE_NAMES.get(kind, kind)

    def constant(values: Any, what: str) -> Handle:
        return rewriter.constant(values, "i64", f"{name}/{what}")

    if "keep" in attributes:
        attributes["keepdims"] = int(attributes.pop("keep"))
    elif op in REDUCTIONS:
        attributes["keepdims"] = 0
    if kind == "Convert":
        attributes["to"] = element_code(attributes["to"])
    elif kind == "Transpose":
        attributes["perm"] = list(attributes.pop("order"))
    elif kind == "Reshape":
        attributes = {} if attributes.pop("zero_keeps", True) else {"allowzero": 1}
    elif kind == "Broadcast":
        attributes.pop("mode", None)
    elif kind == "Slice":
        start, stop, *step = inputs[1:]
        axes = list(attributes.pop("axes"))
        # OpenVINO's frontend computes omitted steps, but its fusions require constant ones.
        steps = step[0] if step else constant([1] * len(axes), "step")
        inputs = [inputs[0], start, stop, constant(axes, "axes"), steps]
    elif kind == "Pad":
        before, after, *value = inputs[1:]
        inputs = [inputs[0], rewriter.make("Concat", [before, after], f"{name}/pads", 1, {"axis": 0})[0], *value]
    elif kind == "Swish" and opset < SWISH:
        return "QuickGelu", "com.microsoft", inputs, {"alpha": 1.0}
    elif opset >= AXES_INPUTS.get(op, opset + 1):
        moved_axes = attributes.pop("axis") if "axis" in attributes else list(attributes.pop("axes"))
        inputs = [*inputs, constant(moved_axes, "axes")]
    return op, None, inputs, attributes
