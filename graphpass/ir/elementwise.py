"""Operators that work on each element, or on each position's vector, by itself."""

from __future__ import annotations

__all__ = ["ELEMENTWISE", "POSITIONWISE"]

_ARITHMETIC = frozenset({"Add", "Subtract", "Multiply", "Divide", "Power", "Maximum", "Minimum", "Select"})

_FUNCTIONS = frozenset(
    {"Sqrt", "Negative", "Abs", "Exp", "Erf", "Relu", "Gelu", "FastGelu", "Swish", "HardSwish", "Sigmoid", "QuickGelu"}
    | {"Tanh", "SoftPlus", "Clamp", "Clip", "Convert", "Identity", "Dropout"}
)

_NORMALIZATIONS = frozenset(
    {"MVN", "RMS", "RMSNormalization", "LayerNormalization", "SimplifiedLayerNormalization"}
    | {"SkipSimplifiedLayerNormalization", "SkipLayerNormalization"}
)

#: Those through which hidden states pass between products with weights.
POSITIONWISE = _ARITHMETIC | _FUNCTIONS | _NORMALIZATIONS

#: All of them; operands may be broadcast.
ELEMENTWISE = (
    POSITIONWISE
    | {"Equal", "NotEqual", "Greater", "GreaterEqual", "Less", "LessEqual", "LogicalAnd", "LogicalOr", "LogicalNot"}
    | {
        "Mod",
        "FloorMod",
        "Floor",
        "Ceiling",
        "Round",
        "Log",
        "Sin",
        "Cos",
        "Reciprocal",
        "Softplus",
        "Sign",
        "BitwiseAnd",
    }
)
