"""Rules of ONNX Runtime: opsets, types, kernels, and fused attention.

Attention operators of com.microsoft append to their caches; other attention runs as written. Source of opsets:
``model.cc`` of ONNX Runtime 1.31.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from graphpass.analysis.equations.head_sizes import why_sizes_refused
from graphpass.analysis.equations.kernel_features import why_left, why_refused
from graphpass.engine.findings import Finding
from graphpass.ir.cache import Inventory
from graphpass.ir.graph import Node
from graphpass.ir.miss import Miss
from graphpass.ir.model import Model
from graphpass.ir.phase import Phase
from graphpass.targets.ort.providers import PROVIDERS, Device, Provider
from graphpass.targets.rules import static_findings

if TYPE_CHECKING:
    from graphpass.analysis.equations.grouped_query import GroupedQuery
    from graphpass.analysis.experts.mixtures import Mixture

_MODEL = "onnxruntime/core/graph/model.cc"
_KERNELS = "docs/OperatorKernels.md"
_GROUPED = "onnxruntime/contrib_ops/cpu/bert/group_query_attention_helper.h"

#: Newest opset of the default domain that ONNX Runtime 1.31 supports.
_NEWEST_OPSET = 26

_NO_KERNEL = {"MoE": "no kernel of MoE: the CPU computes it", "QMoE": "no tested kernel of QMoE"}

_FUSION = "fuse-group-query-attention"


def predict(model: Model, inventory: Inventory, device: Device) -> tuple[Finding, ...]:
    """Predict how ONNX Runtime executes a model.

    Args:
        model: A model in ONNX.
        inventory: The caches of the model.
        device: The execution provider.

    Returns:
        Findings on the model as a whole, on caches, on attention, and on experts.
    """
    phase = Phase.find(model)
    if phase is not None:
        return static_findings(model, phase)
    provider = PROVIDERS[device]
    attention = _attention(model, inventory, provider)
    whole = (*_opsets(model), *_types(model, provider), *_kernels(model, device))
    return (*whole, *_caches(inventory), *attention, *_experts(model, provider))


def _kernels(model: Model, device: Device) -> Iterator[Finding]:
    from graphpass.targets.ort.kernels import without_kernel

    for operator in without_kernel(model) if device == "cpu" else ():
        node = next(iter(model.graph.of_op(operator)), None)
        reason = f"the CPU provider has no kernel of {operator}: export the model for it"
        yield Finding.of_model(model, "refused", reason, _KERNELS, node)


def _types(model: Model, provider: Provider) -> Iterator[Finding]:
    from graphpass.dialects.onnx.precision import first_in_bf16

    node = None if provider.has_bf16 else model.analysis(first_in_bf16)
    if node is not None:
        reason = f"{node.called} is in bf16, for which {provider.name} has no kernels: run change-precision"
        yield Finding.of_model(model, "refused", reason, _KERNELS)


def _opsets(model: Model) -> Iterator[Finding]:
    from graphpass.dialects.onnx.model import OnnxModel
    from graphpass.dialects.onnx.walk import ONNX_DOMAINS

    assert isinstance(model, OnnxModel)
    for entry in model.proto.opset_import:
        if entry.domain in ONNX_DOMAINS and entry.version > _NEWEST_OPSET:
            reason = f"it has opset {entry.version}; ONNX Runtime 1.31 supports opsets up to {_NEWEST_OPSET}"
            yield Finding.of_model(model, "refused", reason, _MODEL)


def _caches(inventory: Inventory) -> Iterator[Finding]:
    for cache in inventory.caches:
        stored = f"in {cache.bits} bits, inside attention" if cache.bits is not None else None
        reason = "only read: another model of the folder computes it" if cache.write is None else stored
        yield Finding("cache", cache.name, "taken", cache.layer, reason=reason)
    for name in inventory.unpaired_outputs:
        yield Finding("cache", name, "taken", reason="only written: another model of the folder reads it")
    for name in inventory.unpaired_inputs:
        yield Finding("cache", name, "not fused", node=name, reason="no output of the model is its present")


def _attention(model: Model, inventory: Inventory, provider: Provider) -> Iterator[Finding]:
    from graphpass.analysis.equations.grouped_query import GroupedQuery, find_grouped_queries

    grouped = {node.name: node for node in model.graph.of_op("GroupQueryAttention")}
    if grouped and not provider.attends_to_past:
        limit = f"{provider.name} computes several new tokens as a prompt without a past: feed them one at a time"
        yield Finding.of_model(model, "taken", limit, provider.source)
    read = model.analysis(find_grouped_queries)
    for block in inventory.attention:
        if block.form == "decomposed":
            miss = read.get(block.node, "it is in the body of a loop or branch")
            remedy = _remedy(miss, provider) if isinstance(miss, GroupedQuery) else miss
            reason = f"computed by MatMul and Softmax as written: {remedy}"
            yield Finding("attention", block.node, "plain", block.layer, reason=reason)
        elif block.node in grouped and (refusal := _refusal(grouped[block.node], block.head_dim, provider)) is not None:
            yield Finding("attention", block.node, "refused", block.layer, block.node, *refusal)
        elif block.form == "Attention" and not provider.has_attention:
            miss = read.get(block.node, "it is in the body of a loop or branch")
            remedy = _remedy(miss, provider) if isinstance(miss, GroupedQuery) else miss
            reason = f"{provider.name} has no kernel of Attention, so that the CPU computes it: {remedy}"
            yield Finding("attention", block.node, "not fused", block.layer, block.node, reason, _KERNELS)
        else:
            group = read.get(block.node)
            better = _remedy(group, provider) if isinstance(group, GroupedQuery) else group
            slower = "" if better is None else f", not GroupQueryAttention, which keeps its cache in place: {better}"
            yield Finding("attention", block.node, "fused", block.layer, reason=f"one operator, {block.form}{slower}")


def _remedy(attention: GroupedQuery, provider: Provider) -> Miss | str:
    counts = "padding" in provider.lacks
    options = [*(["padding=right"] if counts else []), *provider.fusion_options]
    advice = f"run {_FUSION}{{{','.join(options)}}}" if options else f"run {_FUSION}"
    return why_left(attention, provider.lacks, any_padding=not counts) or attention.wants_padding or advice


def _refusal(node: Node, head_dim: int | None, provider: Provider) -> tuple[str, str] | None:
    """Return why ``provider`` refuses a GroupQueryAttention, and the source file; ``None`` if it does not."""
    if (reason := why_sizes_refused(node, head_dim)) is not None:
        return f"{reason}: run lower-operators{{only=[group-query-attention]}}", _GROUPED
    if (lacking := why_refused(node, provider.lacks)) is not None:
        return lacking, provider.source
    kind = node.source().element_type
    if kind not in provider.attention_types:
        types = " and ".join(sorted(provider.attention_types))
        return f"{provider.name} has a kernel for {types}, not for {kind}", provider.source
    return None


def _experts(model: Model, provider: Provider) -> Iterator[Finding]:
    from graphpass.analysis.experts.mixtures import find_mixtures

    kernels = {"MoE": provider.expert_types, "QMoE": provider.quantized_expert_types}
    for node in model.graph.of_op(*kernels):
        kind, types = node.source().element_type, kernels[node.op]
        if kind in types:
            yield Finding("experts", node.name, "fused", reason=f"one operator, {node.op}")
            continue
        known = f"a kernel of {node.op} for {' and '.join(sorted(types))}, not for {kind}"
        reason = f"{provider.name} has {known if types else _NO_KERNEL[node.op]}"
        yield Finding("experts", node.name, "not fused", None, node.name, reason, provider.experts_source)
    for name, mixture in model.analysis(find_mixtures).items():
        remedy = mixture if isinstance(mixture, Miss) else _experts_remedy(model, mixture, provider)
        yield Finding("experts", name, "plain", reason=f"computed as written: {remedy}")


def _experts_remedy(model: Model, mixture: Mixture, provider: Provider) -> Miss | str:
    from graphpass.analysis.experts.mixtures import why_exact_stays

    if not provider.expert_types:
        return f"{provider.name} has no kernel of MoE"
    if mixture.blocks is not None and not provider.quantized_expert_types:
        return f"{provider.name} has {_NO_KERNEL['QMoE']}"
    return why_exact_stays(model.graph, mixture) or "run fuse-experts"
