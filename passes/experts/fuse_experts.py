"""The pass `fuse-experts`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from graphpass.analysis.experts.mixtures import Mixture, find_mixtures, why_exact_stays
from graphpass.dialects.onnx.model import OnnxModel
from graphpass.dialects.onnx.new_weights import NewWeights
from graphpass.dialects.onnx.operators import why_too_old
from graphpass.dialects.onnx.rewriter import OnnxRewriter
from graphpass.dialects.onnx.walk import opset_of
from graphpass.engine.passes import Done, Pass, Skipped
from graphpass.ir.graph import Graph
from graphpass.ir.miss import Miss
from graphpass.ir.rewriter import Handle, Writer
from graphpass.passes.experts.expert_weights import ExpertWeights, Laid, block_of

#: Weights of experts count as this at least, so that one that the router chose does not weigh as one that it did not.
_LEAST = 1e-7

#: Values of accuracy_level: activations in f32, or rounded to 8 bits.
_EXACT, _ROUNDING = 1, 4

Activations = Literal["f32", "int8"]


@dataclass(frozen=True)
class FuseExperts(Pass[OnnxModel]):
    """Compute the experts of a layer in MoE or QMoE of ONNX Runtime.

    Exporters write a search for its tokens for each expert, its products and a sum; or sort the tokens by expert, and
    cut them into a piece for each; or let each expert compute all tokens; or gather the weights of its experts for each
    token. The operator computes the chosen ones alone.
    Milliseconds of a layer of 32 experts, of which a token has 4, hidden size 1024, inner size 768, f32 (ONNX Runtime
    1.32, CPU, 2 cores that did little else, medians of 15 turns):

    | | one token | 256 tokens |
    |---|---|---|
    | a search for each expert | 2.0 | 40 |
    | MoE | 1.7 | 34 |
    | all experts compute all tokens | 16 | 221 |
    | MoE, the same turns | 1.8 | 55 |

    On a busy machine, with threads that spun, the search took 19 to 34 a token, MoE 2.3 to 2.7. Against
    gathered weights MoE took 6.0 instead of 7.7 for a token, 34 instead of 108 for 16.

    Experts are found by structure; the function between their products is computed on numbers, and has to be SwiGLU
    with MoE's parameters, or one of its functions of one product. A softmax over the router's scores is left to the
    operator. Other choices, such as sigmoids and groups of experts, stay as they are, and the operator reads the
    logarithm of their weights, whose softmax they are.

    Experts whose weights are quantized in blocks, by MatMulNBits or DequantizeLinear, become QMoE, with the same whole
    numbers and scales. Milliseconds of the same layer in blocks of 32 (2 threads):

    | | one token | 256 tokens |
    |---|---|---|
    | MatMulNBits of 4 bits, activations in f32 | 1.8 | 61 to 70 |
    | the same, activations in int8; or DequantizeLinear as ONNX Runtime opens it | 1.4 | 43 to 48 |
    | MoE of f32 weights | 1.2 to 1.8 | 66 |
    | QMoE of 4 bits, activations in f32 | 0.8 | 61 |
    | QMoE of 4 bits, activations in int8 | 0.4 | 35 |
    | MatMulNBits of 8 bits, activations in f32 / int8 | 10 / 1.6 | 165 / 46 |
    | QMoE of 8 bits, activations in int8 | 0.6 | 31 |

    The operator requires weights with inputs last, and interleaved columns of gate and linear part. They are rewritten,
    expert by expert. ONNX Runtime would fold operators that transpose and join them when it opens a model, which
    takes 17 s and 4 times their memory for 1.2 GB of weights; as they are now, it maps the file.

    Options:
        activations: With ``int8`` products of quantized weights round activations to 8 bits. With ``f32`` they do so if
            the model's own products do (``accuracy_level=4``); else weights of 8 bits stay, since the operator has no
            product in f32 for them.
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
        WriteError: GP501, the folder of temporary files has no room for the weights.
    """

    name = "fuse-experts"
    dialect = "onnx"

    activations: Activations = "f32"
    quantized: bool = True

    def run(self, model: OnnxModel) -> Done | Skipped:
        if (reason := why_too_old(opset_of(model.proto))) is not None:
            return Skipped(reason)
        found = {name: self._kept(model.graph, one) for name, one in model.analysis(find_mixtures).items()}
        fused = {name: one for name, one in found.items() if isinstance(one, Mixture)}
        notes = [f"experts at {name} stay as they are: {one}" for name, one in found.items() if isinstance(one, Miss)]
        counts = {"layers fused": len(fused), "layers left": len(notes)} if found else {}
        if fused:
            rewriter, weights = model.rewriter(), NewWeights(model.path, "experts")
            laid = ExpertWeights(rewriter, weights, model.path)
            fusion = _Fusion(rewriter, laid)
            for name, one in fused.items():
                fusion.write(name, one, rounds=self.activations == "int8")
            weights.move_rest(rewriter, [one for one in model.graph.of_op("Constant") if one.index not in laid.read])
            weights.finish()
            if weights.file is not None:
                model.scratch += (weights.file,)
            rewriter.finish()
            counts["weights rewritten"] = laid.count
            notes.append(f"{laid.size / 1e6:.1f} MB of weights are laid out as the operator reads them")
        return Done(counts, tuple(notes))

    def _kept(self, graph: Graph, one: Mixture | Miss) -> Mixture | Miss:
        """Return why experts stay that could be fused, if they do."""
        if isinstance(one, Miss) or one.blocks is None:
            return one
        if not self.quantized:
            return Miss(graph.producer(one.result), "weights of its experts are quantized")
        return (None if self.activations == "int8" else why_exact_stays(graph, one)) or one


class _Fusion:
    def __init__(self, rewriter: OnnxRewriter, weights: ExpertWeights) -> None:
        self._rewriter, self._weights = rewriter, weights

    def write(self, name: str, one: Mixture, *, rounds: bool) -> None:
        """Replace the result of a layer; ``rounds`` lets products of quantized weights round activations."""
        write = self._rewriter.under(name)
        kind: dict[str, Any] = {"activation_type": one.activation.kind}
        if one.activation.kind == "swiglu":
            limit = one.activation.limit
            kind |= {"activation_alpha": one.activation.alpha, "activation_beta": one.activation.beta}
            kind |= {"swiglu_fusion": 1} | ({} if limit is None else {"swiglu_limit": limit})
        block, count = block_of(one.products), one.layer.count
        first = self._weights.lay(one.first, count, f"{name}/first", block)
        last = self._weights.lay(one.last, count, f"{name}/last", block)
        if one.blocks is None:
            self._rewriter.replace(one.result, self._plain(write, one, first, last, kind))
            return
        kind |= {"expert_weight_bits": one.blocks.bits, "block_size": block, "weights_prepacked": 0}
        kind["accuracy_level"] = _ROUNDING if rounds or one.rounds else _EXACT
        self._rewriter.replace(one.result, self._quantized(write, one, first, last, kind))

    def _plain(self, write: Writer, one: Mixture, first: Laid, last: Laid, kind: dict[str, Any]) -> Handle:
        logits = one.routing.logits
        whole = write.op(
            "MoE",
            one.tokens if logits is not None else one.layer.rows,
            write.op("Log", self._gates(write, one), label="scores") if logits is None else logits,
            first.weights,
            first.biases,
            last.weights,
            last.biases,
            domain="com.microsoft",
            k=one.routing.slots,
            normalize_routing_weights=int(one.routing.is_normalized),
            **kind,
        )
        if logits is None:
            total = write.op("ReduceSum", one.routing.weights, axes=[1], keep=True, label="total")
            whole = write.op("Multiply", whole, total, label="weighted")
            if one.tokens != one.layer.rows:
                whole = write.op("Reshape", whole, write.op("ShapeOf", one.tokens), label="result")
        return whole

    def _quantized(self, write: Writer, one: Mixture, first: Laid, last: Laid, kind: dict[str, Any]) -> Handle:
        logits = one.routing.logits
        # The kernel of the CPU normalizes weights that it computes itself, whatever the attribute.
        gates = None if logits is not None and one.routing.is_normalized else self._gates(write, one)
        return write.op(
            "QMoE",
            one.tokens,
            logits if gates is None else gates,
            *(first.weights, first.scales, first.biases),
            *(last.weights, last.scales, last.biases),
            *(None, None, None),
            *(first.zeros, last.zeros, None),
            gates,
            domain="com.microsoft",
            k=one.routing.slots,
            normalize_routing_weights=int(gates is None),
            **kind,
        )

    def _gates(self, write: Writer, one: Mixture) -> Handle:
        """Return ``[tokens, experts]``: the weights of the chosen experts, 0 for others."""
        weights, kind = one.routing.weights, one.routing.weights.element_type
        everywhere = write.op("Concat", write.size(weights, 0), [one.layer.count], axis=0)
        none = write.op("Broadcast", write.number(0.0, kind), everywhere)
        # In f16 this is a number, too.
        given = write.op("Maximum", weights, write.number(_LEAST, kind))
        return write.op("ScatterElementsUpdate", none, one.routing.chosen, given, axis=1, label="gates")
