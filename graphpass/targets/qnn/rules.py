"""Rules of Qualcomm's HTP under ONNX Runtime: static shapes, and operators with a builder.

Sources: ``core/providers/qnn/builder`` of ONNX Runtime, and models of one operator on the emulated HTP of
onnxruntime-qnn 2.7.0 (`graphpass.targets.qnn.operators`).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from graphpass.analysis.caches.step_lengths import POSITIONS
from graphpass.analysis.equations.activations import computed_by_positions
from graphpass.analysis.equations.norms import narrow_norms
from graphpass.analysis.symbolic.folding import is_bounded
from graphpass.engine.findings import Finding, Verdict
from graphpass.ir.cache import Inventory
from graphpass.ir.model import Model
from graphpass.ir.phase import Phase
from graphpass.ir.quantizers import quantized_ports
from graphpass.targets.qnn.operators import computed_nodes, products_in_8_bits, why_on_cpu, why_wrong
from graphpass.targets.rules import static_findings

#: Largest number of channels for which HTP computes some norms incorrectly; see the pass `flatten-rows`.
_NARROW = 32

#: Smallest exponent for which Exp is correct; see the pass `lower-for-htp`.
_LEAST = -88.0

_BUILDERS = "onnxruntime/core/providers/qnn/builder/op_builder_factory.cc"


def predict(model: Model, inventory: Inventory) -> tuple[Finding, ...]:  # noqa: ARG001 - as `Target.predict`
    """Predict how HTP executes a model.

    Args:
        model: A prefill or decode model in ONNX.
        inventory: The caches of the model, unused.

    Returns:
        Findings on operators, inputs and caches; one refusal for other models.
    """
    phase = Phase.find(model)
    if phase is None:
        reason = "its shapes are dynamic; HTP requires static ones: run graphpass convert --target qnn"
        return (Finding.of_model(model, "refused", reason, _BUILDERS),)
    return (*_operators(model), *_inexact(model), *static_findings(model, phase))


def predict_pair(prefill: Model, decode: Model, inventory: Inventory) -> tuple[Finding, ...]:
    """Predict how HTP executes a pair.

    Args:
        prefill: The prefill model; a model without a phase has no findings.
        decode: The decode model.
        inventory: The caches of the decode model.

    Returns:
        Findings on the operators of the prefill model, then all findings on the decode model.
    """
    return (*(_operators(prefill) if Phase.find(prefill) is not None else ()), *predict(decode, inventory))


def _operators(model: Model) -> Iterator[Finding]:
    """Yield a finding for each operator that HTP refuses or computes incorrectly."""
    seen: set[tuple[str, str]] = set()
    reached = computed_nodes(model.graph)
    for node in model.graph.nodes:
        if node.index not in reached:
            continue
        refused, wrong = why_on_cpu(model.graph, node), why_wrong(node)
        verdict: Verdict = "wrong" if refused is None else "refused"
        reason = wrong if refused is None else refused
        if reason is not None and (node.op, reason) not in seen:
            seen.add((node.op, reason))
            text = f"HTP does not run {node.op}: {reason}" if refused else f"HTP computes {node.op} wrongly: {reason}"
            yield Finding.of_model(model, verdict, text, _BUILDERS, node)
    for node, _ in itertools.islice(quantized_ports(model.graph), 1):
        role = "reads an input" if node.op == "QuantizeLinear" else "computes an output"
        reason = f"HTP does not run {node.op}: it {role} in floating point: run negate-quantized-ports"
        yield Finding.of_model(model, "refused", reason, _BUILDERS, node)


def _inexact(model: Model) -> Iterator[Finding]:
    """Yield findings on values that HTP rounds, with the pass that prevents it."""
    if values := computed_by_positions(model):
        reason = f"{values[0].name} is computed in f16, with an error of 0.25 at position 1000: run tabulate-angles"
        yield Finding("input", POSITIONS, "taken", reason=reason, source=_BUILDERS)
    for norm, _ in itertools.islice(narrow_norms(model.graph, _NARROW), 1):
        reason = f"{norm.called} has few channels, for which HTP computes many norms incorrectly: run flatten-rows"
        yield Finding.of_model(model, "taken", reason, _BUILDERS, norm)
    exponents = [node for node in model.graph.of_op("Exp") if not is_bounded(model.graph, node.source(), _LEAST)]
    for node in (*exponents, *model.graph.of_op("SoftPlus"))[:1]:
        reason = f"{node.called} is wrong on HTP for inputs below -88, such as decays: run lower-for-htp"
        yield Finding.of_model(model, "taken", reason, _BUILDERS, node)
    for product in itertools.islice(products_in_8_bits(model.graph), 1):
        reason = f"{product.called} multiplies activations of 16 bits, and HTP rounds the second to 8 bits"
        yield Finding.of_model(model, "taken", reason, _BUILDERS, product)
