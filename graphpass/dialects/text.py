"""Create models from the text form."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any

import numpy

from graphpass.errors import UsageError
from graphpass.ir.bodies import WITH_BODIES
from graphpass.ir.element_types import ELEMENT_TYPES
from graphpass.ir.model import Model
from graphpass.ir.operators import LOOP_ENTRIES, LOOP_EXITS
from graphpass.ir.rewriter import Rewriter
from graphpass.ir.text.parser import parse_text
from graphpass.ir.text.statements import Literal, Statement, TensorType
from graphpass.ir.types import Dialect
from graphpass.ir.writer import Handle

_IN_VIEWS = LOOP_ENTRIES | LOOP_EXITS | {*WITH_BODIES}


def parse_model(text: str, dialect: Dialect = "onnx", *, opset: int = 21) -> Model:
    """Create a model from the text of a graph.

    A Constant without elements gets random elements, seeded by its name and digest. Types of computed values are
    checked if the text states them.

    Args:
        text: The graph, in the form that `graphpass print` writes.
        dialect: The dialect of the model.
        opset: Version of the default ONNX operator set.

    Returns:
        The model, without a file.

    Raises:
        UsageError: GP270, the text is not a graph, or the dialect lacks an operator.

    Examples:
        >>> from graphpass.testing import parse_model
        >>> model = parse_model('''%x = Parameter : f32[n, 4]
        ... Result(%x) {name=y}''', "openvino")
        >>> model.inputs[0].shape
        (None, 4)
    """
    statements = parse_text(text)
    model = _empty(dialect, opset)
    rewriter = model.rewriter()
    builder = _Builder(rewriter, dialect)
    for statement in statements:
        builder.add(statement)
    rewriter.finish()
    if dialect == "onnx":
        _infer_outputs(model, builder.untyped)
    model.validate()
    _check_types(model, statements)
    return model


def noise(element_type: str, shape: tuple[int, ...], seed: str) -> numpy.ndarray:
    """Return random elements, equal for equal arguments.

    Args:
        element_type: OpenVINO's short name; integers are from 0 to 3, floating-point elements normally distributed.
        shape: Fixed sizes; columns of floating-point elements have a norm of about 1.
        seed: Seed of the generator, such as the name of the tensor.
    """
    random = numpy.random.default_rng(zlib.crc32(seed.encode()))
    packed = "uint8" if element_type in {"i4", "u2", "u4"} else "float32"
    dtype = numpy.dtype(ELEMENT_TYPES[element_type].dtype or packed)
    if dtype.kind == "b":
        return numpy.asarray(random.random(shape) < 0.5)
    if dtype.kind in "iu":
        return numpy.asarray(random.integers(0, 4, shape), dtype)
    return numpy.asarray(random.standard_normal(shape) * max((1, *shape[:1])) ** -0.5, dtype)


def _empty(dialect: Dialect, opset: int) -> Model:
    if dialect == "onnx":
        import onnx

        from graphpass.dialects.onnx.model import OnnxModel

        imports = [onnx.helper.make_opsetid("", opset), onnx.helper.make_opsetid("com.microsoft", 1)]
        graph = onnx.helper.make_graph([], "parsed", [], [])
        return OnnxModel(onnx.helper.make_model(graph, opset_imports=imports, ir_version=10))
    import openvino

    from graphpass.dialects.openvino.model import OpenVINOModel

    return OpenVINOModel(openvino.Model([], [], "parsed"))


class _Builder:
    """Adds statements to a model.

    Attributes:
        untyped: Names of outputs whose types the text does not state.
    """

    def __init__(self, rewriter: Rewriter, dialect: Dialect) -> None:
        self._rewriter: Any = rewriter
        self._dialect = dialect
        self._values: dict[str, Handle] = {}
        self._types: dict[str, TensorType] = {}
        self.untyped: set[str] = set()

    def add(self, statement: Statement) -> None:
        try:
            self._add(statement)
        except KeyError as error:
            reason = f"it has no attribute {error.args[0]!r}"
            raise UsageError("GP270", f"{statement}: {reason}", f"see the operators of {self._dialect}") from error
        except (RuntimeError, TypeError, ValueError) as error:
            reason = " ".join(str(error).split()) or type(error).__name__
            raise UsageError("GP270", f"{statement}: {reason}", f"see the operators of {self._dialect}") from error

    def _add(self, statement: Statement) -> None:
        name = _name_of(statement)
        sources = [self._operand(operand, f"{name}/input_{port}") for port, operand in enumerate(statement.operands)]
        contents = statement.attributes.items()
        attributes: dict[str, Any] = {
            key: value.values if isinstance(value, Literal) else value for key, value in contents
        }
        if statement.kind == "Result":
            if statement.operands[0] not in self._types:
                self.untyped.add(attributes["name"])
            stated = self._types.get(str(statement.operands[0]), TensorType("f32", None))
            self._rewriter.output(attributes["name"], sources[0], stated.element_type, stated.shape or ())
            return
        if statement.kind == "Assign":
            self._rewriter.add_assign(attributes["variable"], sources[0], f"{attributes['variable']}/write")
            return
        made = self._made(statement, name, sources, attributes)
        self._values |= zip(statement.results, made, strict=True)
        self._types |= zip(statement.results, statement.types, strict=False)

    def _operand(self, operand: str | Literal | None, name: str) -> Handle:
        if isinstance(operand, Literal):
            return self._constant(operand.values, operand.element_type, name)
        if operand is not None and operand not in self._values:
            raise ValueError(f"%{operand} has no statement above it")
        return operand if operand is None else self._values[operand]

    def _constant(self, values: numpy.ndarray, element_type: str, name: str) -> Handle:
        has_dtype = ELEMENT_TYPES[element_type].dtype is not None
        return self._rewriter.constant(values if has_dtype else values.tolist(), element_type, name)

    def _made(self, statement: Statement, name: str, sources: list[Handle], attributes: dict[str, Any]) -> list[Handle]:
        kind, rewriter = statement.kind, self._rewriter
        if kind in {"Constant", "Parameter", "ReadValue"}:
            (type_,) = statement.types
            element_type, shape = type_.element_type, type_.shape
        prefix, _, own = kind.rpartition(".")
        if own in _IN_VIEWS:
            raise ValueError("the text form has no bodies")
        if kind == "Constant" and sources:
            return sources
        if kind == "Constant":
            if element_type == "string":
                raise ValueError("elements of type string cannot be random")
            sizes = tuple(size for size in shape or () if isinstance(size, int))
            values = noise(element_type, sizes, name + statement.digest)
            return [self._weights(values, element_type, name)]
        if kind == "Parameter":
            made = rewriter.input(name, element_type, shape)
            if "names" in attributes and self._dialect == "openvino":
                made.set_names(set(attributes["names"]))
            return [made]
        if kind == "ReadValue":
            initial = sources[0] if sources else None
            return [rewriter.add_variable(attributes["variable"], element_type, shape, initial, name)]
        if prefix:
            attributes |= (
                {"opset": int(prefix.removeprefix("opset"))} if self._dialect == "openvino" else _domain(prefix)
            )
        made = rewriter.make(own, sources, name, len(statement.results), attributes)
        return list(made)

    def _weights(self, values: numpy.ndarray, element_type: str, name: str) -> Handle:
        if self._dialect == "onnx" and ELEMENT_TYPES[element_type].dtype is not None:
            return self._rewriter.declared(values, values.shape, name)
        return self._constant(values, element_type, name)


def _name_of(statement: Statement) -> str:
    """Return the name of the node; the names of several results end in their index."""
    name = next(iter(statement.results), "")
    return name.removesuffix(".0") if len(statement.results) > 1 else name


def _domain(prefix: str) -> Mapping[str, str]:
    return {"domain": "" if prefix == "onnx" else prefix}


def _infer_outputs(model: Any, untyped: set[str]) -> None:
    """Set inferred types of outputs; stated types are kept if onnx cannot infer them.

    Raises:
        UsageError: GP270, an output has neither an inferred nor a stated type.
    """
    import onnx

    from graphpass.dialects.onnx.walk import inferred

    bare = onnx.ModelProto()
    bare.CopyFrom(model.proto)
    for info in bare.graph.output:
        info.ClearField("type")
    for info, output in zip(model.proto.graph.output, inferred(bare).graph.output, strict=True):
        if output.type.tensor_type.HasField("shape"):
            info.CopyFrom(output)
        elif info.name in untyped:
            raise UsageError(
                "GP270", f"the type of output {info.name} cannot be inferred", "state the type of its value"
            )


def _check_types(model: Model, statements: tuple[Statement, ...]) -> None:
    made = {node.name: node for node in model.graph.nodes if node.outputs}
    for statement in statements:
        node = made.get(_name_of(statement))
        for value, stated in zip(() if node is None else node.outputs, statement.types, strict=False):
            actual = TensorType(value.element_type, value.shape)
            if not _fits(stated, actual):
                raise UsageError(
                    "GP270", f"{statement}: expected type {stated}, got {actual}", "correct the type, or omit it"
                )


def _fits(stated: TensorType, actual: TensorType) -> bool:
    if "dynamic" not in {stated.element_type, actual.element_type} and stated.element_type != actual.element_type:
        return False
    if stated.shape is None or actual.shape is None:
        return True
    pairs = zip(stated.shape, actual.shape, strict=False)
    agree = all(left == right for left, right in pairs if isinstance(left, int) and isinstance(right, int))
    return agree and len(stated.shape) == len(actual.shape)
