"""The pass `name-ports`."""

from __future__ import annotations

from dataclasses import dataclass

from graphpass.engine.passes import Done, Pass
from graphpass.engine.port_names import port_names
from graphpass.ir.model import Model


@dataclass(frozen=True)
class NamePorts(Pass[Model]):
    """Rename a decoder's inputs and outputs to their conventional names, which are found by dataflow.

    Runtimes feed inputs by name. Token ids select rows of the embedding table, positions become angles or select rows
    of a table of positions, and a mask of attention reads ``attention_mask``. Ports with several candidates keep their
    names, as caches do; see `rename-caches`. Other names of the same ports are removed.

    Shapes:
        unchanged

    Before:
        tokens -> Gather(table, .), pad -> Where -> Add(scores, .), out (Result)
    After:
        input_ids -> Gather(table, .), attention_mask -> Where -> Add(scores, .), logits (Result)
    """

    name = "name-ports"

    def run(self, model: Model) -> Done:
        names = port_names(model)
        if names:
            graph, rewriter = model.graph, model.rewriter()
            ports = {node.name: node for node in graph.of_op("Parameter", "Result")}
            rewriter.rename_ports({ports[old]: new for old, new in names.items()})
            rewriter.finish()
        return Done({"ports renamed": len(names)}, tuple(f"{old} is {new}" for old, new in names.items() if old != new))
