"""Rewrite models to forms that sessions run on the CPU, for comparisons."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from graphpass.analysis.attention.operators import operator_heads
from graphpass.analysis.caches.growth import growth_of
from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.analysis.caches.last_logits import logits_of_rows, selects_undeclared
from graphpass.analysis.caches.masks import given_mask
from graphpass.analysis.caches.new_entries import find_new_entries
from graphpass.analysis.caches.packed import merged_heads
from graphpass.analysis.caches.step_lengths import MASK
from graphpass.analysis.equations.head_sizes import why_sizes_refused
from graphpass.dialects.onnx.functions import own_functions
from graphpass.dialects.onnx.model import OnnxModel
from graphpass.engine.manager import PassManager
from graphpass.engine.pipeline import parse
from graphpass.engine.port_names import port_names
from graphpass.ir.inputs import is_merged
from graphpass.ir.operators import normalizes_heads
from graphpass.ir.quantizers import rounds_activations

if TYPE_CHECKING:
    from collections.abc import Mapping

    from graphpass.engine.passes import Pass
    from graphpass.ir.graph import Node
    from graphpass.ir.model import Model

_NO_KERNEL = "operators without a kernel on the CPU"


def passes_for_sessions(model: Model) -> tuple[Pass[Any], ...]:
    """Return passes that rewrite what sessions on the CPU do not run.

    - Local functions are inlined, because analyses do not find caches inside of calls.
    - Inputs and outputs get their conventional names.
    - Sizes of caches that only the graph determines are declared, because sessions allocate the caches.
    - An input with the whole mask of attention is computed from ``attention_mask``, which sessions feed.
    - Caches of merged heads are split into heads, because analyses do not find their axes.
    - Logits of each row's last token get the axis of positions, which is declared as 1.
    - Outputs with the new entries of a cache return the past as well, which sessions pass on.
    - Quantized decoders of both steps in one file are replaced by that of later steps, which also computes the first:
      inside an If, products of u8 and s8 saturate on processors without VNNI (``session.x64quantprecision`` has no
      effect there).
    - PagedAttention, and GroupQueryAttention of sizes without a kernel, are lowered: ONNX Runtime's CPU provider
      implements neither (1.32), and other providers have the same limits of sizes.

    Args:
        model: Any model; it is not modified.
    """
    return parse(",".join(model.analysis(_reasons)))


def in_session_form(model: Model) -> Model:
    """Return ``model`` after `passes_for_sessions`.

    Args:
        model: Any model; it is not modified, and returned if no pass is required.

    Raises:
        UnsupportedError: GP340 or GP341, an operator cannot be replaced.
    """
    passes = passes_for_sessions(model)
    return PassManager(passes).run(model).model if passes else model


def notes_on_form(model: Model) -> tuple[str, ...]:
    """Return sentences for the report if the reference ran after `passes_for_sessions`.

    Args:
        model: The reference as it was read.
    """
    steps: dict[str, list[str]] = {}
    for step, reason in model.analysis(_reasons).items():
        if reason is not None:
            steps.setdefault(reason, []).append(step)
    return tuple(f"{reason}: the reference ran after {','.join(passes)}" for reason, passes in steps.items())


def _reasons(model: Model) -> Mapping[str, str | None]:
    """Return the reason for each pass, by its text; ``None`` if runtimes do the same."""
    reasons: dict[str, str | None] = {}
    if isinstance(model, OnnxModel) and own_functions(model.proto):
        reasons["inline-functions"] = None
        model = PassManager(parse("inline-functions")).run(model).model
    graph = model.graph
    if names := port_names(model):
        listed = ", ".join(f"{old} is {new}" for old, new in names.items() if old != new)
        reasons["name-ports"] = f"ports that are named by their use ({listed})" if listed else None
    if has_open_sizes(model):
        reasons["canonicalize-shapes"] = None
    if model.analysis(logits_of_rows) is not None:
        reasons["unsqueeze-logits"] = "logits without an axis of positions"
    if selects_undeclared(model):
        reasons["last-logits"] = None
    if merged_heads(model, analyze_caches(model)):
        reasons["unpack{only=heads}"] = "caches of merged heads"
    if model.analysis(given_mask) is not None and MASK not in graph.parameters:
        reasons["compute-mask"] = "an input with the mask of attention"
    if isinstance(model, OnnxModel) and find_new_entries(model):
        reasons["append-presents"] = "outputs with the new entries of caches, which callers append to the past"
    if is_merged(graph) and rounds_activations(model):
        reasons["select-branch"] = "the branch of the first step, which rounds differently on the CPU"
    if any(True for _ in graph.of_op("PagedAttention")):
        reasons["unpage-caches"] = _NO_KERNEL
    normed = any(map(normalizes_heads, graph.of_op("GroupQueryAttention", "PagedAttention")))
    if normed or any(map(_has_no_kernel, graph.of_op("GroupQueryAttention"))):
        reasons["lower-operators{only=[group-query-attention]}"] = _NO_KERNEL
    return reasons


def has_open_sizes(model: Model) -> bool:
    """Return whether a size of a cache in place is unknown, in an OpenVINO model.

    Args:
        model: Any model; it is not modified.
    """
    inventory, graph = analyze_caches(model), model.graph
    if model.dialect != "openvino" or inventory.stateful:
        return False
    for cache in inventory.of_kind("kv"):
        present = None if cache.write is None else graph.writes[cache.write].source()
        growth = growth_of(model, graph.reads[cache.read].outputs[0], present)
        kept = [axis for axis, change in enumerate(growth) if change == "kept" and axis != cache.axes.batch]
        if any(cache.size(axis) is None for axis in kept):
            return True
    return False


def _has_no_kernel(node: Node) -> bool:
    return why_sizes_refused(node, operator_heads(node).head_dim) is not None
