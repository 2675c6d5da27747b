"""The pass `fold-branches`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from graphpass.analysis.caches.masks import find_elements
from graphpass.analysis.symbolic import expressions as ex
from graphpass.dialects.onnx import branches as onnx_branches
from graphpass.dialects.onnx.rewriter import OnnxRewriter
from graphpass.dialects.openvino import branches as openvino_branches
from graphpass.dialects.openvino.rewriter import OpenVINORewriter
from graphpass.engine.passes import Done, Pass
from graphpass.ir.graph import Node
from graphpass.ir.model import Model


@dataclass(frozen=True)
class FoldBranches(Pass[Model]):
    """Replace each If by a branch if sizes decide its condition.

    Scripted modules compare sizes at run time, for example the lengths of query and key (DeBERTa). OpenVINO's plugins
    (2026.4.1) do not compile an If whose branches have different ranks. Ifs in bodies are kept.

    Before:
        If(Equal(query length, key length)){then: A, else: B}
    After:
        A
    """

    name = "fold-branches"

    def run(self, model: Model) -> Done:
        found = list(decided_branches(model))
        rewriter = model.rewriter()
        if isinstance(rewriter, OnnxRewriter):
            onnx_branches.inline_branches(rewriter, found)
        else:
            assert isinstance(rewriter, OpenVINORewriter)
            openvino_branches.inline_branches(rewriter, found)
        rewriter.finish()
        return Done({"branches taken": len(found)})


def decided_branches(model: Model) -> Iterator[tuple[Node, bool]]:
    """Yield each If of the main graph whose condition is constant, with its value."""
    for node in model.graph.of_op("If"):
        condition = node.source()
        value = ex.holds(model.analysis(find_elements).of(condition, (ex.ZERO,) * (condition.rank or 0)))
        if value in {ex.TRUE, ex.FALSE}:
            yield node, value is ex.TRUE
