"""The pass `lower-operators`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

from graphpass.dialects.onnx.model import OnnxModel
from graphpass.dialects.onnx.walk import ONNX_DOMAINS
from graphpass.engine.passes import Done, Pass
from graphpass.passes.lower.causal_conv import lower_causal_conv
from graphpass.passes.lower.embed_norm import adds_positions, lower_embed_norm
from graphpass.passes.lower.expand_kv_heads import expand_kv_heads, has_unknown_heads
from graphpass.passes.lower.group_query_attention import lower_group_query_attention
from graphpass.passes.lower.linear_attention import lower_linear_attention
from graphpass.passes.lower.lowered_operator import LoweredOperator
from graphpass.passes.lower.mixture_of_experts import lower_mixture_of_experts
from graphpass.passes.lower.projected_attention import keeps_past, lower_projected_attention
from graphpass.passes.lower.quantized_mixture_of_experts import lower_quantized_mixture_of_experts
from graphpass.passes.lower.reshape_weights import reads_reshaped_weights, reshape_weights
from graphpass.passes.lower.rotary_embedding import lower_rotary_embedding
from graphpass.passes.lower.skip_norm import is_narrow, lower_skip_norm
from graphpass.passes.lower.tensor_scatter import lower_tensor_scatter

_MICROSOFT = frozenset({"com.microsoft"})

_Name = Literal[
    "causal-conv",
    "embed-norm",
    "group-query-attention",
    "linear-attention",
    "quantized-mixture-of-experts",
    "mixture-of-experts",
    "projected-attention",
    "quantized-projected-attention",
    "rotary-embedding",
    "skip-norm",
    "tensor-scatter",
    "expand-kv-heads",
    "reshape-weights",
]


class Lowering(NamedTuple):
    """A lowering of one operator type.

    Attributes:
        operator: Type of the operator, after its domain if ONNX has another operator of the type.
        counted: Name of the statistic.
        lower: Function that replaces an operator.
        domains: Domains of the operator.
        wanted: Function that returns whether an operator is to be lowered.
        in_bodies: Whether operators in bodies and functions are lowered as well.
    """

    operator: str
    counted: str
    lower: Callable[[LoweredOperator], None]
    domains: frozenset[str] = _MICROSOFT
    wanted: Callable[[LoweredOperator], bool] = lambda _: True
    in_bodies: bool = False

    @property
    def native_type(self) -> str:
        """Type of the operator in ONNX."""
        return self.operator.rpartition(".")[2]


LOWERINGS: dict[_Name, Lowering] = {
    "causal-conv": Lowering(
        "CausalConvWithState", "convolutions lowered", lower_causal_conv, ONNX_DOMAINS | _MICROSOFT
    ),
    "embed-norm": Lowering("EmbedLayerNormalization", "norms lowered", lower_embed_norm, wanted=adds_positions),
    "group-query-attention": Lowering("GroupQueryAttention", "attention lowered", lower_group_query_attention),
    "linear-attention": Lowering(
        "LinearAttention", "layers lowered", lower_linear_attention, ONNX_DOMAINS | _MICROSOFT
    ),
    "quantized-mixture-of-experts": Lowering("QMoE", "mixtures lowered", lower_quantized_mixture_of_experts),
    "mixture-of-experts": Lowering("MoE", "mixtures lowered", lower_mixture_of_experts),
    "projected-attention": Lowering(
        "com.microsoft.Attention", "attention lowered", lower_projected_attention, wanted=keeps_past
    ),
    "quantized-projected-attention": Lowering("QAttention", "attention lowered", lower_projected_attention),
    "rotary-embedding": Lowering("RotaryEmbedding", "embeddings lowered", lower_rotary_embedding),
    "skip-norm": Lowering("SkipSimplifiedLayerNormalization", "norms lowered", lower_skip_norm, wanted=is_narrow),
    "tensor-scatter": Lowering("TensorScatter", "scatters lowered", lower_tensor_scatter, ONNX_DOMAINS),
    "expand-kv-heads": Lowering(
        "Attention", "attention with heads expanded", expand_kv_heads, ONNX_DOMAINS, has_unknown_heads, in_bodies=True
    ),
    "reshape-weights": Lowering(
        "GatherBlockQuantized", "weights redeclared", reshape_weights, wanted=reads_reshaped_weights, in_bodies=True
    ),
}


@dataclass(frozen=True)
class LowerOperators(Pass[OnnxModel]):
    """Lower operators of single runtimes to standard ONNX operators.

    OpenVINO's frontend has no rule for these operators, or an incorrect or slow one (2026.4.1, compared with ONNX
    Runtime 1.31). Weights are not copied, and masked padding is still masked.

    Options:
        only: Lowerings to run; all by default.
        f32_norms: Whether to lower SkipSimplifiedLayerNormalization in f32 as well.

    Before:
        CausalConvWithState
    After:
        Concat, Conv and Slice, with 0 in columns that attention_mask excludes

    Before:
        com.microsoft EmbedLayerNormalization with position ids or a sum
    After:
        Gather of embeddings, Add, LayerNormalization

    Before:
        com.microsoft GroupQueryAttention
    After:
        rotary embedding, a growing cache and decomposed attention with the mask whose sum was seqlens_k

    Before:
        LinearAttention
    After:
        Scan over tokens

    Before:
        com.microsoft QMoE, MoE
    After:
        batched products over all experts, weighted by the router, of quantized weights after DequantizeLinear

    Before:
        com.microsoft Attention with a cache, QAttention
    After:
        products with the weights, a growing cache and decomposed attention

    Before:
        com.microsoft RotaryEmbedding
    After:
        Gather of cosines and sines, Slice, Neg, Concat, Mul, Add

    Before:
        com.microsoft SkipSimplifiedLayerNormalization, in f16 or bf16
    After:
        Add, SimplifiedLayerNormalization

    Before:
        TensorScatter
    After:
        ScatterElements

    Before:
        Attention with an unknown number of heads, and keys and values of fewer heads
    After:
        Attention with keys and values expanded to the heads of the query (expand-kv-heads)

    Before:
        weights -> Reshape -> GatherBlockQuantized
    After:
        the same bytes, declared with the shape after the Reshape -> GatherBlockQuantized

    Raises:
        UnsupportedError: GP340, an opset before 13; GP341, an operator that cannot be lowered, with the reason.
    """

    name = "lower-operators"
    dialect = "onnx"

    only: tuple[_Name, ...] = get_args(_Name)
    f32_norms: bool = False

    def run(self, model: OnnxModel) -> Done:
        lowerings = [LOWERINGS[name] for name in self.only]
        wanted = {(domain, lowering.native_type): lowering for lowering in lowerings for domain in lowering.domains}
        rewriter = model.rewriter()
        nodes = rewriter.graph.of_op(*(lowering.operator for lowering in lowerings))
        known = {id(rewriter.node(node)): node for node in nodes}
        shared: dict[Hashable, Any] = {}
        counts: Counter[str] = Counter()
        for native in rewriter.every(*(lowering.native_type for lowering in lowerings)):
            lowering = wanted.get((native.domain or "", native.op))
            if lowering is None:
                continue
            prefix = native.name or native.outputs[0].name
            operator = LoweredOperator(rewriter, native, known.get(id(native)), rewriter.under(prefix), shared)
            wanted_norm = self.f32_norms and lowering is LOWERINGS["skip-norm"]
            if not (wanted_norm or lowering.wanted(operator)):
                continue
            if operator.node is None and not lowering.in_bodies:
                raise operator.refusal("it is in a body or a function")
            lowering.lower(operator)
            counts[lowering.counted] += 1
        rewriter.finish()
        return Done(dict(counts))
