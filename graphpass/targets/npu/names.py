"""Know the names, and the Gather, by which NPUW takes a model apart.

Sources, of openvino: ``src/core/src/pass/stateful_to_stateless.cpp`` (variables, the Gather); the regular expressions
stand in the 2026.4.1 libraries.
"""

from __future__ import annotations

import re

from graphpass.engine.view import Sees
from graphpass.ir.graph import Graph, Node
from graphpass.ir.inputs import PAST_LENGTH, TOKEN_INPUTS

_DENSE = re.compile(r"past_key_values\.\d+\.(key|value)present\.\d+\.(key|value)")
_HYBRID = re.compile(r"cache_params\.past\.(key|value|conv|ssm)\.\d+cache_params\.present\.(key|value|conv|ssm)\.\d+")

#: Known inputs, those of some families included; every other is taken for a cache.
KNOWN_INPUTS = frozenset(
    {*TOKEN_INPUTS, "attention_mask", "position_ids", "beam_idx", "token_type_ids", "per_layer_inputs"}
)

#: Inputs by which passes let a caller edit caches, and see or take back steps.
EDITING_INPUTS = frozenset({"src_idx", "dst_idx", PAST_LENGTH, "tree_mask", "steps_back"})

#: A cure for models with editing inputs: NPUW overwrites what lies from the first position on that it is fed.
GO_BACK = "to go back, rewind a session: graphpass.runtime.open_session(model, device='NPU')"

#: The cure if states would have to go back, which positions do not move.
START_AGAIN = "to go back, start again, as sessions on NPU do: NPUW keeps no earlier states"


def is_hybrid(variable: str) -> bool:
    """Return whether ``variable`` bears a name of the hybrid family."""
    return _HYBRID.fullmatch(variable) is not None


def named_kind(variable: str) -> Sees:
    """Return the kind of cache that NPUW reads from the name of a variable."""
    if _DENSE.fullmatch(variable):
        return "kv"
    found = _HYBRID.fullmatch(variable)
    if found is None:
        return "nothing"
    return "kv" if found[1] in {"key", "value"} else "linear"


def gather_by_beams(graph: Graph, read: Node) -> Node | None:
    """Return the Gather by ``beam_idx`` that reads a variable as it is."""
    for use in graph.uses(read.outputs[0]):
        index = use.node.inputs[1] if use.node.op == "Gather" and use.port == 0 else None
        if index is not None and graph.producer(index).name == "beam_idx":
            return use.node
    return None
