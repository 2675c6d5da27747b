"""A mask of -inf makes queries without keys NaN: equal to the reference only if it does the same."""

from __future__ import annotations

import dataclasses

import numpy
import onnx
import onnx.parser
import pytest
from onnx import numpy_helper
from support.attention_graphs import Form, Mask, Sink, build
from support.loaded import exported, onnx_model

from graphpass.analysis.symbolic.folding import fold_scalar
from graphpass.dialects.onnx.model import OnnxModel
from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.ir.values import MASKED_BELOW
from graphpass.verify.structure.proof import compare_structures

LOWEST = Form(masks=(Mask("B1LS", "keep", fill=float(numpy.finfo(numpy.float32).min)),))
INFINITE = Form(masks=(Mask("B1LS", "keep"),))
GUARDED = dataclasses.replace(INFINITE, guard=True)


def is_equal(reference: Form, candidate: Form) -> bool:
    proof = compare_structures(*(OpenVINOModel(build(form)) for form in (reference, candidate)))
    assert proof is not None
    assert proof.operators > 0
    return proof.equal == proof.operators


@pytest.mark.parametrize(
    ("reference", "candidate"),
    [(LOWEST, LOWEST), (INFINITE, INFINITE), (INFINITE, LOWEST), (INFINITE, GUARDED), (LOWEST, GUARDED)],
)
def test_no_further_nan_is_equal(reference, candidate):
    assert is_equal(reference, candidate)


@pytest.mark.parametrize("reference", [LOWEST, GUARDED])
def test_nan_in_the_candidate_alone_is_not_equal(reference):
    assert not is_equal(reference, INFINITE)


@pytest.mark.parametrize("column", ["first", "last"])
def test_a_sink_keeps_each_query_from_nan(column):
    sink = Sink(column=column)
    assert is_equal(dataclasses.replace(LOWEST, sink=sink), dataclasses.replace(INFINITE, sink=sink))


@pytest.mark.parametrize(("kind", "is_defined"), [("Constant", True), ("ConstantOfShape", False)])
def test_infinity_is_compared_on_padded_rows_only(kind, is_defined):
    """Bloom selects the fill of padding, and multiplies that of later positions by 0 elsewhere."""
    reference = onnx_model("bloom")
    candidate = reference.clone()
    assert isinstance(candidate, OnnxModel)
    for node in candidate.proto.graph.node:
        for attribute in node.attribute if node.op_type == kind else ():
            if attribute.name == "value" and attribute.t.data_type == 1:
                array = numpy.frombuffer(attribute.t.raw_data, numpy.float32)
                attribute.t.raw_data = numpy.where(array < MASKED_BELOW, -numpy.inf, array).astype("f4").tobytes()
    proof = compare_structures(reference, OnnxModel(candidate.proto))
    assert proof is not None
    assert proof.equal == 0
    assert (proof.unpadded == proof.operators) == is_defined


def test_a_finite_bound_keeps_each_query_from_nan():
    """The reference raises -inf to the lowest number before Softmax, or before the sum with the scores."""

    def model_of(body: str) -> OnnxModel:
        text = f"""<ir_version: 9, opset_import: ["": 18]>
        masked (float[b, n, n] x, bool[b, n, n] keep) => (float[b, n, m] logits) {{
            zero = Constant <value_float = 0.0> () lowest = Constant <value_float = -3.402823466e+38> ()
            {body} logits = Concat <axis = -1> (y, y)
        }}"""
        proto = onnx.parser.parse_model(text)
        # The text form has no infinite numbers.
        proto.graph.initializer.append(numpy_helper.from_array(numpy.float32(-numpy.inf), "infinity"))
        return OnnxModel(onnx.shape_inference.infer_shapes(proto))

    mask = "mask = Where (keep, zero, infinity) "
    sum_of, infinite = (
        model_of(mask + "low = Add (x, mask) s = Max (low, lowest) y = Softmax (s)"),
        model_of(mask + "s = Add (x, mask) y = Softmax (s)"),
    )
    term = model_of("mask = Where (keep, zero, lowest) s = Add (x, mask) y = Softmax (s)")
    assert compare_structures(infinite, infinite.clone()).is_complete
    assert compare_structures(infinite, sum_of).is_complete
    assert compare_structures(sum_of, term).is_complete
    assert not compare_structures(sum_of, infinite).is_complete
    assert not compare_structures(term, infinite).is_complete


def test_infinite_masks_of_fused_attention_are_compared_on_padded_rows():
    """ScaledDotProductAttention of the CPU plugin returns NaN for queries that attend to no key."""
    reference = exported("llama/ov-stateless")
    candidate = reference.clone()
    rewriter = candidate.rewriter()
    write = rewriter.under("fault")
    for node in candidate.graph.of_op("Select"):
        if (fold_scalar(candidate.graph, node.source(2)) or 0) < MASKED_BELOW:
            rewriter.redirect(node, 2, write.number(-numpy.inf, "f32"))
    rewriter.finish()
    candidate.mark_edited()
    proof = compare_structures(reference, candidate)
    assert proof is not None
    assert (proof.equal, proof.unpadded) == (0, proof.operators)
    infinite = compare_structures(candidate, candidate.clone())
    assert infinite is not None
    assert infinite.is_complete_with_padding
