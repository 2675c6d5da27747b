"""The pass `fuse-experts`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from graphpass.analysis.experts.mixtures import Mixture, find_mixtures, why_exact_stays
from graphpass.dialects.onnx.model import OnnxModel
from graphpass.dialects.onnx.new_weights import NewWeights
from graphpass.dialects.onnx.rewriter import OnnxRewriter
from graphpass.engine.conditions import OPSET_13
from graphpass.engine.passes import Done, Pass
from graphpass.ir.graph import Graph
from graphpass.ir.miss import Miss
from graphpass.ir.writer import Handle, Writer
from graphpass.passes.experts.expert_weights import ExpertWeights, Laid, block_of

#: Least routing weight of a selected expert, to distinguish it from experts that are not selected.
_LEAST = 1e-7

#: Values of accuracy_level: activations in f32, or rounded to 8 bits.
_EXACT, _ROUNDING = 1, 4

Activations = Literal["f32", "int8"]


@dataclass(frozen=True)
class FuseExperts(Pass[OnnxModel]):
    """Fuse the experts of a layer to MoE or QMoE of ONNX Runtime.

    Exporters write experts in four forms:

    - a search for the tokens of each expert, its products and a sum
    - tokens sorted by expert, and sliced for each expert
    - all tokens computed by each expert
    - weights of the selected experts gathered for each token

    The fused operator computes only the selected experts.

    Milliseconds for a layer of 32 experts, 4 of them selected for a token, hidden size 1024, inner size 768, f32 (ONNX
    Runtime 1.32, CPU, 2 cores that were mostly idle, medians of 15 runs):

    | | one token | 256 tokens |
    |---|---|---|
    | a search for each expert | 2.0 | 40 |
    | MoE | 1.7 | 34 |
    | all experts compute all tokens | 16 | 221 |
    | MoE, the same runs | 1.8 | 55 |

    On a busy machine, with spinning threads, one token took 19 to 34 ms with the search and 2.3 to 2.7 ms with MoE.
    Compared with gathered weights, MoE took 6.0 ms instead of 7.7 for one token, 34 ms instead of 108 for 16 tokens.

    Experts are found by structure. The function between their products is identified by its values on samples: SwiGLU
    with MoE's parameters, or one of MoE's functions of one product. If the router is a softmax over its scores, the
    operator computes it. Other routers, such as sigmoids and groups of experts, are unchanged, and the operator reads
    the logarithm of the routing weights.

    Experts with weights quantized in blocks, by MatMulNBits or DequantizeLinear, become QMoE with the same integers and
    scales. Milliseconds for the same layer in blocks of 32 (2 threads):

    | | one token | 256 tokens |
    |---|---|---|
    | MatMulNBits of 4 bits, activations in f32 | 1.8 | 61 to 70 |
    | MatMulNBits of 4 bits, activations in int8; or DequantizeLinear, fused by ONNX Runtime | 1.4 | 43 to 48 |
    | MoE of f32 weights | 1.2 to 1.8 | 66 |
    | QMoE of 4 bits, activations in f32 | 0.8 | 61 |
    | QMoE of 4 bits, activations in int8 | 0.4 | 35 |
    | MatMulNBits of 8 bits, activations in f32 / int8 | 10 / 1.6 | 165 / 46 |
    | QMoE of 8 bits, activations in int8 | 0.6 | 31 |

    The operator requires weights with inputs last, and interleaved columns of gate and linear part. The pass rewrites
    the weights, expert by expert, and ONNX Runtime maps the new file. With operators that transpose and join them in
    the graph instead, ONNX Runtime would fold these when it loads the model: 17 s, and 4 times the memory, for 1.2 GB
    of weights.

    Options:
        activations: With ``int8``, products of quantized weights round activations to 8 bits. With ``f32``, only
            products that already do so round activations (``accuracy_level=4``); other experts with 8-bit weights are
            unchanged, because QMoE has no f32 product for them.
        quantized: Whether experts with quantized weights become QMoE.

    Shapes:
        tokens ``[tokens, hidden]`` or ``[batch, length, hidden]``, router ``[tokens, experts]``, weights ``[experts, 2
        * inner, hidden]`` and ``[experts, hidden, inner]``

    Before:
        for each expert: NonZero(OneHot(chosen)[expert]) -> Gather(tokens) -> MatMul, .. -> Mul(., weights) ->
        ScatterElements -> Add; or
        Gather(tokens, TopK(chosen) / k) -> for each expert: Slice(as many as chose it) -> MatMul -> Concat, .. ->
        Mul(., weights) -> ScatterElements; or
        Tile(tokens) -> MatMul(., weights of all experts), .. -> Mul(., weights by expert) -> ReduceSum; or
        Expand(tokens) -> MatMul(., GatherND(weights of all experts, chosen)), .. -> Mul(., weights) -> ReduceSum
    After:
        MoE(tokens, scores, weights, biases, weights, biases); or
        QMoE(tokens, scores, weights, scales, biases, weights, scales, biases, .., zero points, weights by expert)

    Raises:
        ReadError: GP105, a weight's data is missing.
        WriteError: GP501, the folder of temporary files has no space for the weights.
    """

    name = "fuse-experts"
    dialect = "onnx"
    only_for = (OPSET_13,)

    activations: Activations = "f32"
    quantized: bool = True

    def run(self, model: OnnxModel) -> Done:
        mixtures = {name: self._kept(model.graph, mixtures) for name, mixtures in model.analysis(find_mixtures).items()}
        fused = {name: mixture for name, mixture in mixtures.items() if isinstance(mixture, Mixture)}
        notes = [
            f"experts at {name} stay unchanged: {mixture}"
            for name, mixture in mixtures.items()
            if isinstance(mixture, Miss)
        ]
        counts = {"layers fused": len(fused), "layers left": len(notes)} if mixtures else {}
        if fused:
            rewriter, weights = model.rewriter(), NewWeights(model.path, "experts")
            laid = ExpertWeights(rewriter, weights, model.path)
            fusion = _Fusion(rewriter, laid)
            for name, mixture in fused.items():
                fusion.write(name, mixture, rounds=self.activations == "int8")
            weights.move_rest(rewriter, [node for node in model.graph.of_op("Constant") if node.index not in laid.read])
            weights.finish()
            if weights.file is not None:
                model.scratch += (weights.file,)
            rewriter.finish()
            counts["weights rewritten"] = laid.count
            notes.append(f"{laid.size / 1e6:.1f} MB of weights are rewritten in the layout of the operator")
        return Done(counts, tuple(notes))

    def _kept(self, graph: Graph, mixture: Mixture | Miss) -> Mixture | Miss:
        """Return ``mixture``, or the reason if the options exclude it."""
        if isinstance(mixture, Miss) or mixture.blocks is None:
            return mixture
        if not self.quantized:
            return Miss(graph.producer(mixture.result), "weights of its experts are quantized")
        return (None if self.activations == "int8" else why_exact_stays(graph, mixture)) or mixture


class _Fusion:
    def __init__(self, rewriter: OnnxRewriter, weights: ExpertWeights) -> None:
        self._rewriter, self._weights = rewriter, weights

    def write(self, name: str, mixture: Mixture, *, rounds: bool) -> None:
        """Replace the result of a layer; with ``rounds``, quantized products round activations to 8 bits."""
        write = self._rewriter.under(name)
        kind: dict[str, Any] = {"activation_type": mixture.activation.kind}
        if mixture.activation.kind == "swiglu":
            limit = mixture.activation.limit
            kind |= {"activation_alpha": mixture.activation.alpha, "activation_beta": mixture.activation.beta}
            kind |= {"swiglu_fusion": 1} | ({} if limit is None else {"swiglu_limit": limit})
        block, count = block_of(mixture.products), mixture.layer.count
        first = self._weights.lay(mixture.first, count, f"{name}/first", block)
        last = self._weights.lay(mixture.last, count, f"{name}/last", block)
        if mixture.blocks is None:
            self._rewriter.replace(mixture.result, self._plain(write, mixture, first, last, kind))
            return
        kind |= {"expert_weight_bits": mixture.blocks.bits, "block_size": block, "weights_prepacked": 0}
        kind["accuracy_level"] = _ROUNDING if rounds or mixture.rounds else _EXACT
        self._rewriter.replace(mixture.result, self._quantized(write, mixture, first, last, kind))

    def _plain(self, write: Writer, mixture: Mixture, first: Laid, last: Laid, kind: dict[str, Any]) -> Handle:
        logits = mixture.routing.logits
        whole = write.op(
            "MoE",
            mixture.tokens if logits is not None else mixture.layer.rows,
            write.op("Log", self._gates(write, mixture), label="scores") if logits is None else logits,
            first.weights,
            first.biases,
            last.weights,
            last.biases,
            domain="com.microsoft",
            k=mixture.routing.slots,
            normalize_routing_weights=int(mixture.routing.is_normalized),
            **kind,
        )
        if logits is None:
            total = write.op("ReduceSum", mixture.routing.weights, axes=[1], keep=True, label="total")
            whole = write.op("Multiply", whole, total, label="weighted")
            if mixture.tokens != mixture.layer.rows:
                whole = write.op("Reshape", whole, write.op("ShapeOf", mixture.tokens), label="result")
        return whole

    def _quantized(self, write: Writer, mixture: Mixture, first: Laid, last: Laid, kind: dict[str, Any]) -> Handle:
        logits = mixture.routing.logits
        # The CPU kernel normalizes weights that it computes itself, independent of the attribute.
        gates = None if logits is not None and mixture.routing.is_normalized else self._gates(write, mixture)
        return write.op(
            "QMoE",
            mixture.tokens,
            logits if gates is None else gates,
            *(first.weights, first.scales, first.biases),
            *(last.weights, last.scales, last.biases),
            *(None, None, None),
            *(first.zeros, last.zeros, None),
            gates,
            domain="com.microsoft",
            k=mixture.routing.slots,
            normalize_routing_weights=int(gates is None),
            **kind,
        )

    def _gates(self, write: Writer, mixture: Mixture) -> Handle:
        """Return routing weights ``[tokens, experts]``, 0 for experts that are not selected."""
        weights, kind = mixture.routing.weights, mixture.routing.weights.element_type
        everywhere = write.op("Concat", write.size(weights, 0), [mixture.layer.count], axis=0)
        none = write.op("Broadcast", write.number(0.0, kind), everywhere)
        # The least weight is representable in f16.
        positive = write.op("Maximum", weights, write.number(_LEAST, kind))
        return write.op("ScatterElementsUpdate", none, mixture.routing.chosen, positive, axis=1, label="gates")
