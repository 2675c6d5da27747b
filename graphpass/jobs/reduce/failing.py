"""A graph on which a pipeline fails, as text.

    // RUN: fuse-attention
    // DIALECT: onnx 17
    // KEEPS: different
    // SIZES: n2=2 n3=3
    // INPUT: %ids = [[1, 2, 0], [0, 3, 1]]
    %ids = Parameter : i64[n2, n3]
    ...

Inputs without an ``INPUT`` line are noise seeded by their names.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from graphpass.dialects.text import parse_model
from graphpass.engine.passes import Pass
from graphpass.engine.pipeline import format_passes, parse as parse_pipeline
from graphpass.errors import UsageError
from graphpass.ir.model import Model
from graphpass.ir.text.parser import parse_text
from graphpass.ir.text.statements import Literal, Statement
from graphpass.ir.types import Dialect
from graphpass.verify.evaluate import noise_for

if TYPE_CHECKING:
    from graphpass.runtime.sessions.inputs import Array

_LINE = re.compile(r"^// (RUN|DIALECT|KEEPS|SIZES|INPUT): *(.*)$", re.MULTILINE)

#: Kinds of statements that are not operators.
_PORTS = frozenset({"Constant", "Parameter", "Result", "Assign", "ReadValue"})


@dataclass(frozen=True)
class Failing:
    """A graph, and the pipeline that fails on it.

    Attributes:
        statements: The graph.
        dialect: The dialect of the model.
        opset: Version of ONNX's default operator set.
        passes: The pipeline.
        keeps: The failure: the id of an error, ``different`` or ``slow``.
        sizes: Sizes of symbolic dimensions.
        inputs: Values of the inputs that are not noise, by name.
    """

    statements: tuple[Statement, ...]
    dialect: Dialect
    opset: int
    passes: tuple[Pass[Any], ...]
    keeps: str
    sizes: Mapping[str, int] = field(default_factory=dict)
    inputs: Mapping[str, Array] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> Failing:
        """Parse the text that ``str(case)`` returns.

        Returns:
            The case, with the default opset 21 if the text states none.

        Raises:
            UsageError: GP270, the text is not a case; GP210 to GP213, the pipeline is invalid.
        """
        lines = _LINE.findall(text)
        fields = dict(lines)
        if missing := {"RUN", "DIALECT", "KEEPS"} - fields.keys():
            message = f"expected a line // {min(missing)}: in the case, found none"
            raise UsageError("GP270", message, "graphpass reduce writes cases")
        dialect, _, opset = fields["DIALECT"].partition(" ")
        inputs: dict[str, Array] = {}
        for name, line in lines:
            if name == "INPUT":
                target, _, literal = line.partition(" = ")
                (statement,) = parse_text(f"{target} = Constant({literal})")
                operand = statement.operands[0]
                assert isinstance(operand, Literal)
                inputs[statement.results[0]] = operand.values
        sizes = {name: int(size) for name, _, size in (part.partition("=") for part in fields.get("SIZES", "").split())}
        known: Dialect = "openvino" if dialect == "openvino" else "onnx"
        passes = parse_pipeline(fields["RUN"])
        return cls(parse_text(text), known, int(opset or 21), passes, fields["KEEPS"], sizes, inputs)

    @property
    def nodes(self) -> int:
        """Return the number of operators."""
        return sum(statement.kind not in _PORTS for statement in self.statements)

    @property
    def feeds(self) -> dict[str, Array]:
        """Return the values of all inputs by name, in their types and sizes."""
        arrays = noise_for(self.statements, self.sizes)
        return arrays | {name: array for name, array in self.inputs.items() if name in arrays}

    def model(self) -> Model:
        """Return the model.

        Raises:
            UsageError: GP270, the statements are not a graph.
        """
        return parse_model("\n".join(map(str, self.statements)), self.dialect, opset=self.opset)

    def __str__(self) -> str:
        types = {
            statement.results[0]: statement.types[0] for statement in self.statements if statement.kind == "Parameter"
        }
        dialect = f"onnx {self.opset}" if self.dialect == "onnx" else self.dialect
        lines = [f"// RUN: {format_passes(self.passes)}", f"// DIALECT: {dialect}", f"// KEEPS: {self.keeps}"]
        if self.sizes:
            lines.append(f"// SIZES: {' '.join(f'{name}={size}' for name, size in sorted(self.sizes.items()))}")
        for name, array in self.inputs.items():
            if name in types:
                literal = Literal(array, types[name].element_type)
                target = str(Statement((name,), "Constant")).removesuffix(" = Constant")
                lines.append(f"// INPUT: {target} = {literal.typed}")
        return "\n".join([*lines, *map(str, self.statements)]) + "\n"
