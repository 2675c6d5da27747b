"""The pass `fuse-experts`."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy
from onnx import numpy_helper

from graphpass.analysis.experts.mixtures import Mixture, find_mixtures
from graphpass.analysis.experts.products import Product
from graphpass.dialects.onnx.model import OnnxModel
from graphpass.dialects.onnx.new_weights import NewWeights
from graphpass.dialects.onnx.rewriter import OnnxRewriter
from graphpass.dialects.onnx.tensors import external_data, is_external, nbytes
from graphpass.dialects.onnx.walk import opset_of
from graphpass.engine.passes import Done, Pass, Skipped
from graphpass.ir.graph import Value
from graphpass.ir.pattern import Miss
from graphpass.ir.rewriter import Handle, Writer

#: Operators are written as of this version and later ones.
_FIRST_OPSET = 13

#: Weights of experts count as this at least, so that one that the router chose does not weigh as one that it did not.
_LEAST = 1e-7

Array: TypeAlias = "numpy.ndarray[Any, Any]"

_TYPES = {"f16": "<f2", "f32": "<f4"}


@dataclass(frozen=True)
class FuseExperts(Pass[OnnxModel]):
    """Compute the experts of a layer in MoE of ONNX Runtime.

    Exporters write a search for its tokens for each expert, its products and a sum; or let each expert compute all
    tokens; or gather the weights of its experts for each token. The operator computes the chosen ones alone.
    Milliseconds of a layer of 32 experts, of which a token has 4, hidden size 1024, inner size 768, f32 (ONNX Runtime
    1.32, CPU, 2 shared cores, medians of three runs):

    | | one token | 256 tokens |
    |---|---|---|
    | a search for each expert | 19 to 34 | 267 to 405 |
    | all experts compute all tokens | 69 to 95 | 551 to 747 |
    | MoE | 2.3 to 2.7 | 177 to 244 |

    Against gathered weights it took 6.2 instead of 37 for a token, 109 instead of 434 for 32.

    Experts are found by structure; the function between their products is computed on numbers, and has to be SwiGLU
    with MoE's parameters, or one of its functions of one product. A softmax over the router's scores is left to the
    operator. Other choices, such as sigmoids and groups of experts, stay as they are, and the operator reads the
    logarithm of their weights, whose softmax they are.

    The operator wants weights with inputs last, and the columns of gate and linear part in turns. They are written
    anew, expert by expert. ONNX Runtime would fold operators that transpose and join them when it opens a model, which
    takes 17 s and 4 times their memory for 1.2 GB of weights; as they are now, it maps the file.

    Shapes:
        tokens ``[tokens, hidden]`` or ``[batch, length, hidden]``, router ``[tokens, experts]``, weights ``[experts, 2
        * inner, hidden]`` and ``[experts, hidden, inner]``

    Before:
        for each expert: NonZero(OneHot(chosen)[expert]) -> Gather(tokens) -> MatMul, .. -> Mul(., weights) ->
        ScatterElements -> Add; or
        Tile(tokens) -> MatMul(., weights of all experts), .. -> Mul(., weights by expert) -> ReduceSum; or
        Expand(tokens) -> MatMul(., GatherND(weights of all experts, chosen)), .. -> Mul(., weights) -> ReduceSum
    After:
        MoE(tokens, scores, weights, biases, weights, biases)

    Raises:
        ReadError: GP105, a weight's data is missing.
        WriteError: GP501, the folder of temporary files has no room for the weights.
    """

    name = "fuse-experts"
    dialect = "onnx"

    def run(self, model: OnnxModel) -> Done | Skipped:
        if opset_of(model.proto) < _FIRST_OPSET:
            return Skipped(f"the model is of an opset before {_FIRST_OPSET}")
        found = model.analysis(find_mixtures)
        fused = {name: one for name, one in found.items() if isinstance(one, Mixture)}
        notes = [f"experts at {name} stay as they are: {one}" for name, one in found.items() if isinstance(one, Miss)]
        counts = {"layers fused": len(fused), "layers left": len(notes)} if found else {}
        if fused:
            rewriter, weights = model.rewriter(), NewWeights(model.path, "experts")
            fusion = _Fusion(rewriter, weights, model.path)
            for name, one in fused.items():
                fusion.write(name, one)
            weights.move_rest(rewriter, [one for one in model.graph.of_op("Constant") if one.index not in fusion.read])
            weights.finish()
            if weights.file is not None:
                model.scratch += (weights.file,)
            rewriter.finish()
            counts["weights written anew"] = fusion.count
            notes.append(f"{fusion.size / 1e6:.1f} MB of weights are laid out as the operator reads them")
        return Done(counts, tuple(notes))


class _Fusion:
    def __init__(self, rewriter: OnnxRewriter, weights: NewWeights, path: Path | None) -> None:
        self.count = self.size = 0
        self._rewriter, self._weights, self._path = rewriter, weights, path
        self.read: set[int] = set()
        self._inline: dict[Value, Array] = {}

    def write(self, name: str, one: Mixture) -> None:
        """Replace the result of a layer."""
        write = self._rewriter.under(name)
        expert = one.experts[0]
        kind: dict[str, Any] = {"activation_type": expert.activation.kind}
        if expert.activation.kind == "swiglu":
            limit = expert.activation.limit
            kind |= {"activation_alpha": expert.activation.alpha, "activation_beta": expert.activation.beta}
            kind |= {"swiglu_fusion": 1} | ({} if limit is None else {"swiglu_limit": limit})
        logits = one.routing.logits
        scores = self._scores(write, one) if logits is None else logits
        whole = write.op(
            "MoE",
            one.tokens if logits is not None else one.rows,
            scores,
            *self._constants(name, one.count, [each.first for each in one.experts], "first"),
            *self._constants(name, one.count, [(each.last,) for each in one.experts], "last"),
            domain="com.microsoft",
            k=one.routing.slots,
            normalize_routing_weights=int(one.routing.is_normalized),
            **kind,
        )
        if logits is None:
            total = write.op("ReduceSum", one.routing.weights, axes=[1], keep=True, label="total")
            whole = write.op("Multiply", whole, total, label="weighted")
            if one.tokens != one.rows:
                whole = write.op("Reshape", whole, write.op("ShapeOf", one.tokens), label="result")
        self._rewriter.replace(one.result, whole)

    def _scores(self, write: Writer, one: Mixture) -> Handle:
        """Return scores ``[tokens, experts]`` whose softmax has the weights of the chosen experts, by their sum."""
        weights, kind = one.routing.weights, one.routing.weights.element_type
        everywhere = write.op("Concat", write.size(weights, 0), [one.count], axis=0)
        none = write.op("Broadcast", write.number(0.0, kind), everywhere)
        # In f16 this is a number, too.
        given = write.op("Maximum", weights, write.number(_LEAST, kind))
        gates = write.op("ScatterElementsUpdate", none, one.routing.chosen, given, axis=1, label="gates")
        return write.op("Log", gates, label="scores")

    def _constants(
        self, name: str, count: int, experts: list[tuple[Product, ...]], label: str
    ) -> tuple[Handle, Handle | None]:
        """Return weights ``[experts, parts * outputs, inputs]`` and biases ``[experts, parts * outputs]``."""
        graph = self._rewriter.graph
        products = experts[0]
        stored = [one.weight for parts in experts for one in parts]
        stored += [one.bias for parts in experts for one in parts if one.bias is not None]
        self.read |= {value.node for value in stored}
        inline = {value for value in stored if not is_external(graph.producer(value).native)}
        self._inline = {value: numpy_helper.to_array(graph.producer(value).native) for value in inline}
        external = any(is_external(graph.producer(value).native) for value in stored)
        rows = len(products) * products[0].outputs
        tensor = graph.producer(products[0].weight).native

        def write(shape: list[int], part: str, expert: Callable[[int], Array]) -> Handle:
            pieces = (numpy.ascontiguousarray(expert(number)).tobytes() for number in range(count))
            made = self._weights.written(tensor.data_type, shape, pieces, external=external)
            self.count += 1
            self.size += nbytes(made)
            return self._weights.declare(self._rewriter, made, f"{name}/{label}_{part}")

        def parts_of(number: int) -> tuple[Product, ...]:
            return experts[number if len(experts) > 1 else 0]

        weights = write(
            [count, rows, products[0].inputs],
            "weights",
            lambda number: self._in_turns([self._weight(one, number) for one in parts_of(number)]),
        )
        if products[0].bias is None:
            return weights, None
        biases = write(
            [count, rows],
            "biases",
            lambda number: self._in_turns([self._bias(one, number) for one in parts_of(number)]),
        )
        return weights, biases

    def _in_turns(self, parts: list[Array]) -> Array:
        """Return rows of all parts: the first of each, then the second of each."""
        return parts[0] if len(parts) == 1 else numpy.stack(parts, 1).reshape(-1, *parts[0].shape[1:])

    def _weight(self, product: Product, expert: int) -> Array:
        """Return the weight ``[outputs, inputs]`` of one expert."""
        held = self._held(product.weight, expert, 2)
        return (held if product.is_turned else held.T)[slice(*product.columns)]

    def _bias(self, product: Product, expert: int) -> Array:
        assert product.bias is not None
        return self._held(product.bias, expert, 1)[slice(*product.columns)]

    def _held(self, value: Value, expert: int, rank: int) -> Array:
        """Return one expert's part of a constant, in so many dimensions."""
        tensor = self._rewriter.graph.producer(value).native
        shape = tuple(tensor.dims)[-rank:]
        first = expert * math.prod(shape) if math.prod(tensor.dims) > math.prod(shape) else 0
        if value in self._inline:
            held = self._inline[value].reshape(-1)
            return held[first : first + math.prod(shape)].reshape(shape)
        data, kind = external_data(tensor, self._path), numpy.dtype(_TYPES[value.element_type])
        return numpy.memmap(data.file, kind, "r", data.offset + first * kind.itemsize, shape)
