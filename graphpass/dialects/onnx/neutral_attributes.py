"""Translate attributes of ONNX operators to neutral names and values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import onnx
from onnx import numpy_helper

from graphpass.dialects.attributes import text_of
from graphpass.dialects.onnx.operators import AXES_PORTS
from graphpass.dialects.onnx.shapes import kept_outputs
from graphpass.dialects.onnx.tensors import embedded
from graphpass.ir.graph import Value, positive_axis
from graphpass.ir.operators import REDUCTIONS, SCATTERS, STATE_OPERATORS

_Given: TypeAlias = Mapping[str, onnx.AttributeProto]
"""Native attributes by name."""

_DEFAULT_AXIS = {
    "Gather": 0,
    "Softmax": -1,
    "LogSoftmax": -1,
    "VariadicSplit": 0,
    "OneHot": -1,
    "ScatterElementsUpdate": 0,
    "TopK": -1,
    "TensorScatter": -2,
}

#: Operators that flatten their operand to a matrix at ``axis``, 1 by default, before this opset.
_FLATTENING, _PLAIN_SOFTMAX = frozenset({"LogSoftmax", "Softmax"}), 13

#: Operators whose axis counts dimensions of the output.
_BY_RESULT = frozenset({"OneHot", "Unsqueeze"})

#: Operators whose output may have fewer axes than the input.
_REMOVES_AXES = REDUCTIONS | {"Squeeze"}

#: Reductions of ScatterElements by their names in OpenVINO.
_SCATTERED = {"add": "sum", "mul": "prod"}

#: Operators whose native attributes are copied to the graph.
_WITH_ATTRIBUTES = STATE_OPERATORS.keys() | {"Conv", "CumSum", "GatherND", "MatMulNBits"}
_WITH_ATTRIBUTES |= {"RotaryEmbedding", "TensorScatter"}


class AttributeTranslation:
    """Translation of the attributes of one model's operators."""

    def __init__(self, opset: int, model_file: Path | None, integers: Callable[[Value], list[int] | None]) -> None:
        """Bind what attributes depend on beside their operator.

        Args:
            opset: Version of the default domain.
            model_file: The ``.onnx`` file; ``None`` for a model in memory.
            integers: Returns the elements of a constant; ``None`` for other values.
        """
        self._opset, self._model_file, self._integers = opset, model_file, integers

    def neutral(
        self, op: str, native: onnx.NodeProto, inputs: Sequence[Value | None], outputs: Sequence[Value]
    ) -> dict[str, Any]:
        """Return the attributes of an operator by neutral names.

        Args:
            op: Neutral name of the operator.
            native: The operator.
            inputs: Its inputs, ``None`` if omitted.
            outputs: Its outputs.
        """
        given: _Given = {attribute.name: attribute for attribute in native.attribute}
        values = (*outputs[:1], *inputs[:1]) if op in _BY_RESULT else (*inputs[:1], *outputs[:1])
        counted = inputs[:1] if op in _REMOVES_AXES else values
        rank = next((value.rank for value in counted if value is not None and value.rank is not None), None)
        neutral = self._axis(op, given, rank)
        if op == "Transpose" and ("perm" in given or rank is not None):
            neutral["order"] = tuple(given["perm"].ints) if "perm" in given else tuple(reversed(range(rank or 0)))
        if (axes := self._axes(op, given, inputs, rank)) is not None:
            neutral["axes"] = tuple(positive_axis(int(axis), rank) for axis in axes)
        if op in SCATTERS:
            reduction = text_of(given["reduction"].s) if "reduction" in given else "none"
            neutral |= {} if reduction == "none" else {"reduction": _SCATTERED.get(reduction, reduction)}
        if op == "ConstantOfShape":
            filling = embedded(given["value"].t, self._model_file) if "value" in given else None
            neutral["value"] = 0.0 if filling is None else numpy_helper.to_array(filling).item()
        if op == "Loop":
            neutral["kept"] = kept_outputs(native)
        if op in _TRANSLATIONS:
            neutral |= _TRANSLATIONS[op](given)
        if "epsilon" in given:
            neutral["epsilon"] = given["epsilon"].f
        if op in _WITH_ATTRIBUTES:
            neutral |= {name: onnx.helper.get_attribute_value(attribute) for name, attribute in given.items()}
        return neutral

    def _axis(self, op: str, given: _Given, rank: int | None) -> dict[str, Any]:
        if "axis" not in given and op not in _DEFAULT_AXIS:
            return {}
        axis, flattens = given["axis"].i if "axis" in given else _DEFAULT_AXIS[op], {}
        if op in _FLATTENING and self._opset < _PLAIN_SOFTMAX:
            axis = given["axis"].i if "axis" in given else 1
            flattens = {} if rank is not None and axis % rank == rank - 1 else {"flattens": True}
        return {**flattens, "axis": positive_axis(axis, rank)}

    def _axes(self, op: str, given: _Given, inputs: Sequence[Value | None], rank: int | None) -> Sequence[int] | None:
        """Return the axes; ``None`` if the operator has none, or computes them."""
        port = AXES_PORTS.get(op)
        computed = inputs[port] if port is not None and port < len(inputs) else None
        axes = given["axes"].ints if "axes" in given else self._integers(computed) if computed is not None else None
        if op not in REDUCTIONS or axes or (axes is None and computed is not None):
            return axes
        if "noop_with_empty_axes" in given and given["noop_with_empty_axes"].i:
            return ()
        # A reduction without axes reduces all of them.
        return None if rank is None else range(rank)


def _of_fused_product(given: _Given) -> dict[str, Any]:
    """Return attributes of com.microsoft FusedMatMul; source: docs/ContribOperators.md.

    FusedMatMul can also transpose batch axes.
    """
    flags = {name: given[name].i for name in ("transA", "transB", "transBatchA", "transBatchB") if name in given}
    neutral: dict[str, Any] = {"alpha": given["alpha"].f if "alpha" in given else 1.0}
    if flags.get("transBatchA") or flags.get("transBatchB"):
        return neutral
    return neutral | {"transpose_a": bool(flags.get("transA")), "transpose_b": bool(flags.get("transB"))}


def _of_top_k(given: _Given) -> dict[str, Any]:
    smallest = {"mode": "min"} if "largest" in given and not given["largest"].i else {}
    return smallest | ({"sort": "none"} if "sorted" in given and not given["sorted"].i else {})


def _of_pad(given: _Given) -> dict[str, Any]:
    mode = given["mode"].s if "mode" in given else b"constant"
    return {} if mode == b"constant" else {"pad_mode": text_of(mode)}


_TRANSLATIONS: dict[str, Callable[[_Given], dict[str, Any]]] = {
    "Reshape": lambda given: {"special_zero": not given["allowzero"].i} if "allowzero" in given else {},
    "ReduceSum": lambda given: {"keeps_axes": "keepdims" not in given or given["keepdims"].i != 0},
    "MatMul": lambda _: {"transpose_a": False, "transpose_b": False},
    "FusedMatMul": _of_fused_product,
    "Einsum": lambda given: {"equation": text_of(given["equation"].s)},
    "Pad": _of_pad,
    "TopK": _of_top_k,
    "Trilu": lambda given: {"upper": given["upper"].i != 0 if "upper" in given else True},
    "ShapeOf": lambda given: {name: given[name].i for name in ("start", "end") if name in given},
    "Slice": lambda _: {"steps_port": 4},
    "DequantizeLinear": lambda given: {"block_size": given["block_size"].i if "block_size" in given else 0},
}
