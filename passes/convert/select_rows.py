"""The pass `select-rows`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from graphpass.dialects.openvino.branches import constant_branches
from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.engine.passes import Done, Pass
from graphpass.ir.graph import Node, Use
from graphpass.ir.writer import Handle, Writer


@dataclass(frozen=True)
class SelectRows(Pass[OpenVINOModel]):
    """Replace an If between tables by a Select between their rows.

    onnxruntime-genai's builder writes such an If for longrope (Phi-3). NPUW does not support it, since the tables
    differ in size. If the condition depends on ``position_ids``, OpenVINO's CPU plugin (2026.4.1) returns NaN in the
    first step.

    Before:
        If(condition){then: table, else: table} -> Gather(., positions)
    After:
        Select(condition, Gather(table, positions), Gather(table, Minimum(positions, rows - 1)))
    """

    name: ClassVar[str] = "select-rows"
    dialect: ClassVar[Literal["openvino"]] = "openvino"

    def run(self, model: OpenVINOModel) -> Done:
        graph, rewriter = model.graph, model.rewriter()
        selected = 0
        for node in graph.of_op("If"):
            for port, tables in constant_branches(node).items():
                for use in filter(_gathers, graph.uses(node.outputs[port])):
                    write = rewriter.under(use.node.name)
                    rows = _rows(write, use.node, tables)
                    rewriter.replace(use.node.outputs[0], write.op("Select", node.source(), *rows))
                    selected += 1
        rewriter.finish()
        return Done({"gathers of chosen tables": selected})


def _gathers(use: Use) -> bool:
    return use.node.op == "Gather" and use.port == 0 and use.node.attributes.get("axis", 0) == 0


def _rows(write: Writer, gather: Node, tables: tuple[tuple[Handle, int], ...]) -> list[Handle]:
    """Return the rows of each table; larger indices select the last row."""
    index, most = gather.source(1), max(rows for _, rows in tables)
    made = []
    for table, rows in tables:
        last = write.constant(rows - 1, "last", index.element_type)
        places = index if rows == most else write.op("Minimum", index, last)
        made.append(write.op("Gather", table, places, axis=0))
    return made
