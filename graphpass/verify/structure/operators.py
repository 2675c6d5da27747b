"""Symbolic definitions of Divide, Dropout and Reshape, and the table of all operators."""

from __future__ import annotations

from graphpass.analysis.symbolic import expressions as ex
from graphpass.analysis.symbolic.bounds import is_natural
from graphpass.analysis.symbolic.elements import Element, OperatorTable, Rule, Steps, UnknownError
from graphpass.analysis.symbolic.places import digits, regrouped
from graphpass.analysis.symbolic.table import TABLE
from graphpass.dialects.attributes import native_attributes
from graphpass.ir.graph import Node
from graphpass.ir.values import MASKED_BELOW
from graphpass.verify.structure import (
    activations,
    attention,
    block_weights,
    branches,
    convolutions,
    experts,
    group_query,
    norms,
    products,
    quantizers,
    recurrences,
    reductions,
    selection,
    softmax,
)
from graphpass.verify.structure.tensors import as_function, definitions_of


def _quotient(element: Element) -> Steps:
    """Return an element of Divide.

    Raises:
        UnknownError: OpenVINO's specification rounds a negative quotient down, but its CPU plugin truncates.
    """
    if element.node.attributes.get("floors") and not is_natural((yield element.broadcast(0))):
        raise UnknownError("devices round quotients of negative integers differently")
    return (yield from TABLE.elements["Divide"](element))


def _reshape(element: Element) -> Steps:
    """Return an element of a Reshape or Flatten.

    The index of the operand is split by sizes where possible, otherwise by quotients and remainders.
    """
    targets = element.shape(0)
    result, places, flat = regrouped(element.index, element.own_shape, targets)
    flat = definitions_of(element).algebra.normal(flat)
    while places:
        place = places.pop()
        if not places:
            result[place] = flat
            break
        flat, result[place] = digits(flat, targets[place])
    return (yield element.node.source(), tuple(result))


# Others


def _identity_of(element: Element) -> Steps:
    if element.value.port:
        raise UnknownError("the mask output has no definition")
    if element.node.input(2) is not None and (yield element.node.source(2), ()) is not ex.FALSE:
        raise UnknownError("training_mode has no definition")
    return (yield element.node.source(), element.index)


RULES: dict[str, Rule] = {
    **TABLE.elements,
    "Divide": _quotient,
    "Dropout": _identity_of,
    "Flatten": _reshape,
    "Reshape": _reshape,
}


#: Attributes that the definitions of fused operators read, or that change no defined result.
_READ: dict[str, frozenset[str]] = {
    "Attention": frozenset(
        {"is_causal", "kv_num_heads", "q_num_heads", "qk_matmul_output_mode", "scale", "softcap", "softmax_precision"}
    ),
    "CausalConvWithState": frozenset({"activation", "channels_last", "dilation", "ndim", "state_window"}),
    "EmbedLayerNormalization": frozenset({"epsilon", "mask_index_type"}),
    "GatherBlockQuantized": frozenset({"bits", "block_size", "gather_axis", "quantize_axis"}),
    "GroupQueryAttention": frozenset(
        {"causal", "do_rotary", "k_norm_epsilon", "k_quant_type", "kv_cache_bit_width", "kv_num_heads"}
        | {"local_window_size", "num_heads", "q_norm_epsilon", "qk_norm_epsilon", "qk_output", "rotary_interleaved"}
        | {"scale", "sliding_window_cache", "smooth_softmax", "softcap", "v_quant_type"}
    ),
    "LinearAttention": frozenset({"chunk_size", "kv_num_heads", "q_num_heads", "scale", "state_window", "update_rule"}),
    "MatMulNBits": frozenset({"K", "N", "accuracy_level", "bits", "block_size"}),
    "MoE": frozenset(
        {"activation_alpha", "activation_beta", "activation_type", "k", "normalize_routing_weights", "swiglu_fusion"}
        | {"swiglu_limit", "use_sparse_mixer"}
    ),
    "MultiHeadAttention": frozenset({"mask_filter_value", "num_heads", "scale", "unidirectional"}),
    "QMoE": frozenset(
        {"activation_alpha", "activation_beta", "activation_type", "block_size", "expert_weight_bits"}
        | {"fc1_expert_weight_bits", "fc2_expert_weight_bits", "fc3_expert_weight_bits", "k"}
        | {"normalize_routing_weights", "quant_type", "swiglu_fusion", "swiglu_limit", "use_sparse_mixer"}
        | {"weights_prepacked"}
    ),
    "com.microsoft.Attention": frozenset(
        {"mask_filter_value", "num_heads", "qkv_hidden_sizes", "scale", "unidirectional"}
    ),
    "RotaryEmbedding": frozenset({"interleaved", "num_heads", "rotary_embedding_dim", "scale"}),
}


#: Attributes that kernels compare with 1.
_FLAGS = frozenset(
    {"causal", "channels_last", "do_rotary", "interleaved", "is_causal", "normalize_routing_weights"}
    | {"rotary_interleaved", "sliding_window_cache", "unidirectional"}
)

#: Operators whose attribute ``scale`` has a default other than 0, and is not the default if it is 0.
_SCALED = frozenset({"Attention", "RotaryEmbedding"})


def _refuse_attributes(node: Node) -> None:
    """Check that all attributes have a definition.

    Raises:
        UnknownError: An attribute has none, such as one of a later version of the operator.
    """
    attributes = native_attributes(node)
    unread = sorted(attributes.keys() - _READ[node.op])
    if unread:
        raise UnknownError(f"attribute {unread[0]} has no definition")
    if any(attributes.get(name, 0) not in {0, 1} for name in _FLAGS):
        raise UnknownError("flags are 0 or 1")
    if node.op in _SCALED and attributes.get("scale") == 0:
        raise UnknownError("scale = 0 has no definition")
    if attributes.get("local_window_size") == 0:
        raise UnknownError("local_window_size = 0 has no definition")
    if attributes.get("mask_filter_value", MASKED_BELOW) > MASKED_BELOW:
        raise UnknownError("mask_filter_value does not mask")


def _guarded(rule: Rule) -> Rule:
    """Return ``rule`` with a fallback: an uninterpreted function of the operands."""

    def run(element: Element) -> Steps:
        try:
            if element.node.op in _READ:
                _refuse_attributes(element.node)
            return (yield from rule(element))
        except UnknownError as error:
            return (yield from as_function(element, str(error)))

    return run


_PARTS = (
    activations,
    attention,
    block_weights,
    branches,
    convolutions,
    experts,
    group_query,
    norms,
    products,
    quantizers,
    recurrences,
    reductions,
    selection,
    softmax,
)


def table() -> OperatorTable:
    """Return the symbolic definitions of all operators."""
    rules = {op: _guarded(rule) for rules in (RULES, *(part.RULES for part in _PARTS)) for op, rule in rules.items()}
    sized = (attention, block_weights, branches, experts, norms, selection)
    first = {op: size for sizes in (TABLE.sizes, *(part.SIZES for part in sized)) for op, size in sizes.items()}
    return OperatorTable(rules, first, {**attention.STATES, **norms.SIZES, **selection.FURTHER_SIZES})
