"""Errors and findings shared by several targets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from graphpass.analysis.attention.find import find_attention
from graphpass.analysis.attention.types import Attention
from graphpass.dialects.attributes import native_attributes
from graphpass.engine.conditions import ONNX, OPSET_13
from graphpass.engine.findings import Finding, Verdict
from graphpass.engine.syntax import quote
from graphpass.errors import UnsupportedError
from graphpass.ir.cache import Cache, Inventory
from graphpass.ir.graph import Graph
from graphpass.ir.inputs import BRANCH, is_merged
from graphpass.ir.miss import MissError
from graphpass.ir.model import Model
from graphpass.ir.phase import Phase
from graphpass.ir.types import is_fixed

#: Levels of quantizers that OpenVINO's plugins drop.
_DROPPED = 65536

_STRIPPING = "src/common/low_precision_transformations/src/qdq_stripping.cpp"
_GENERIC = "src/plugins/intel_npu/src/plugin/npuw/compiled_model.cpp"


def encoder_error(target: str, others: str) -> UnsupportedError:
    """Return the error for an encoder and a target that requires caches.

    Args:
        target: Name of the target.
        others: Targets that support encoders, for the hint: ``cpu or gpu``.
    """
    reason = f"the model is an encoder without caches, which target {target} requires"
    return UnsupportedError("GP338", reason, f"convert it for {others}")


def require_onnx(model: Model, target: str) -> None:
    """Refuse OpenVINO IR.

    Args:
        model: The model to convert.
        target: Name of the target, for the message.

    Raises:
        UnsupportedError: GP366, the model is OpenVINO IR.
    """
    if missing := ONNX.missing(model):
        raise UnsupportedError("GP366", f"target {target} writes ONNX, but {missing}", ONNX.hint)


def upgrade_opset(model: Model) -> tuple[str, ...]:
    """Return the pass that converts an opset before 13, for later passes.

    Args:
        model: An ONNX model.
    """
    return () if OPSET_13.missing(model) is None else ("upgrade-opset",)


def later_steps(model: Model) -> Model | None:
    """Return a copy of a merged decoder with the branch for later steps.

    It is the result of `select-branch`, and also computes the first step. Targets choose passes by its operators.

    Returns:
        The copy; ``None`` for other models.
    """
    if not is_merged(model.graph):
        return None
    from graphpass.dialects.onnx.branches import with_branch
    from graphpass.dialects.onnx.model import OnnxModel

    assert isinstance(model, OnnxModel)
    return with_branch(model, BRANCH, True)


def drop_ports(outputs: Iterable[str], inputs: Iterable[str] = ()) -> tuple[str, ...]:
    """Return the pass that drops outputs and unread inputs, as text.

    Args:
        outputs: Names of outputs.
        inputs: Names of inputs.
    """
    named = {"outputs": tuple(outputs), "inputs": tuple(inputs)}
    options = [f"{option}=[{','.join(map(quote, names))}]" for option, names in named.items() if names]
    return (f"drop-ports{{{','.join(options)}}}",) if options else ()


def require_fused(attention: Attention) -> None:
    """Refuse attention that is not a ScaledDotProductAttention.

    Raises:
        MissError: The attention is another operator, or decomposed; the reason names the pass that fuses it, or the
            miss of that pass.
    """
    op = attention.node.op
    if op == "Softmax":
        remedy = attention.miss or "run fuse-attention"
        raise MissError(attention.node, f"it is decomposed around a Softmax: {remedy}")
    if op != "ScaledDotProductAttention":
        raise MissError(attention.node, f"expected ScaledDotProductAttention, got {op}")


def attention_findings(
    model: Model,
    inventory: Inventory,
    check: Callable[[Graph, Attention], None],
    source: str,
    otherwise: Verdict = "not fused",
) -> tuple[Finding, ...]:
    """Return one finding for each attention block.

    Args:
        model: The model.
        inventory: Inventory of the model.
        check: Raises `MissError` if the runtime does not fuse an attention block over a growing cache.
        source: Source file of the runtime with the rule.
        otherwise: Verdict on blocks that the runtime does not fuse.
    """
    own = {attention.node.name: attention for attention in model.analysis(find_attention)}
    kinds = {cache.name: cache.kind for cache in inventory.caches}
    findings = []
    for block in inventory.attention:
        read = {kinds[name] for name in (block.key, block.value) if name is not None}
        attention = own.get(block.node)
        if "kv" not in read:
            reason = "it reads the encoder's keys and values" if "cross" in read else "it reads no growing cache"
            findings.append(Finding("attention", block.node, "plain", block.layer, reason=reason))
        elif attention is None:
            reason = "it is in the body of a loop or branch"
            findings.append(Finding("attention", block.node, otherwise, block.layer, block.node, reason, source))
        else:
            try:
                check(model.graph, attention)
            except MissError as error:
                findings.append(Finding.at(error.miss, "attention", block.node, otherwise, source, block.layer))
            else:
                findings.append(Finding("attention", block.node, "fused", block.layer))
    return tuple(findings)


def linear_finding(cache: Cache, source: str, *, is_variable: bool) -> Finding:
    """Return the finding on a ``linear`` cache, which plugins do not fuse.

    Args:
        cache: The cache.
        source: The runtime's source file that contains the rule.
        is_variable: Whether the cache is a variable, which plugins support unchanged.
    """
    if is_variable:
        return Finding("cache", cache.name, "taken", cache.layer)
    reason = "the state is an input of the model, not a variable: run make-stateful"
    return Finding("cache", cache.name, "not fused", cache.layer, cache.read, reason, source)


def failing_branches(model: Model, source: str) -> Iterator[Finding]:
    """Yield a finding for each If of dynamic rank, which plugins do not compile.

    Args:
        model: A model in OpenVINO IR.
        source: The runtime's source file that contains the rule.
    """
    for node in model.graph.of_op("If"):
        if any(value.rank is None for value in node.outputs):
            yield Finding.of_model(model, "refused", "it is an If of dynamic rank", source, node)


def dropped_quantizers(model: Model) -> Iterator[Finding]:
    """Yield a finding for the first quantizer of 16 bits, which OpenVINO's CPU plugin drops.

    The plugin (2026.4.1) then does not limit values to the quantizer's range either: logits of a gpt2 with 16-bit
    activations change by 0.6. NPUW's parts and proofs for GPUs run on this plugin.

    Args:
        model: A model in OpenVINO IR.
    """
    for node in model.graph.of_op("FakeQuantize"):
        if int(native_attributes(node)["levels"]) == _DROPPED:
            reason = "it rounds to 16 bits and limits values; the CPU plugin drops it: quantize activations to 8 bits"
            yield Finding.of_model(model, "wrong", reason, _STRIPPING, node)
            return


def static_findings(model: Model, phase: Phase) -> tuple[Finding, ...]:
    """Predict the execution of a prefill or decode model of static shapes.

    `graphpass split` writes such models. Their caches are inputs and outputs, and the caller writes new positions
    into them. NPUW runs the model on its generic path, without ``NPUW_LLM``.

    Args:
        model: The model.
        phase: The phase of the model, with its caches.

    Returns:
        A refusal of each input of dynamic shape, then a finding on each cache.
    """
    dynamic = "its shape is not static: run graphpass split again"
    written = "static shape; the caller writes new positions"
    return (
        *(
            Finding("input", port.name, "refused", reason=dynamic, source=_GENERIC)
            for port in model.inputs
            if not is_fixed(port.shape)
        ),
        *(Finding("cache", cache.read, "taken", layer=cache.layer, reason=written) for cache in phase.caches),
    )
