"""Structures of both models: correct results are equal for every input, and no fault is."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy
import onnx
import onnx.parser
import pytest
from mutants import attributes, moves, triggers  # noqa: F401 - registers their faults
from mutants.faults import faults
from support.loaded import converted, exported, run_once
from support.models import exporters
from verify.structure.comparing import read_by_openvino, unequal

from graphpass.analysis.symbolic import expressions as ex
from graphpass.dialects.onnx.model import OnnxModel
from graphpass.io import load
from graphpass.verify.structure.proof import compare_structures

#: Faults that padded rows alone show, which are left to numbers.
OF_PADDING = ("padding let in", "causal lost for one layer", "more than 1 pads", "more than 8 pads")

#: Faults that leave the dataflow of each cache: `verify` finds them by the names of pasts and presents.
OF_NAMES = ("a key cache and a value cache of two layers exchanged",)


@pytest.mark.parametrize("target", ["cpu", "gpu", "npu", "ort"])
@pytest.mark.parametrize("model", ["llama", "gpt2", "falcon", "phi3", "bloom"])
def test_results_are_equal_for_every_input(model, target):
    reference = exported(f"{model}/onnx")
    result = converted(reference, target).model
    found = compare_structures(reference, result)
    assert found is not None
    assert found.equal == found.unpadded == found.operators > 0
    assert found.regions == ()


@pytest.mark.parametrize(
    ("model", "target"),
    [
        ("llama", "ort-genai"),
        ("gemma2", "ort-genai"),
        ("qwen3", "ort-genai"),
        ("gpt2", "ort-genai"),
        ("mistral_sw8", "gpu"),
        ("gpt_oss", "cpu"),
    ],
)
def test_results_are_equal_without_padding(model, target):
    reference = exported(f"{model}/onnx")
    found = compare_structures(reference, converted(reference, target).model)
    assert found is not None
    assert found.is_complete
    assert found.regions == ()


@pytest.mark.parametrize(
    ("place", "target"),
    [
        ("opt/onnx", "cpu"),
        ("opt/onnx", "ort"),
        ("xglm/ov-stateful", "cpu"),
        ("lfm2/onnx-genai", "ort"),
        ("lfm2/ov-stateful", "cpu{cache=reorder}"),
        ("llama/onnx-fp16", "ort"),
        ("t5/onnx/encoder_model.onnx", "cpu"),
        ("t5/onnx/decoder_with_past_model.onnx", "ort"),
        ("t5/onnx/decoder_model_merged.onnx", "ort"),
        ("qwen3_moe/onnx", "cpu"),
        ("qwen3_moe/onnx", "ort"),
        ("gpt_oss/onnx", "ort"),
        ("deepseek_v3/ov-stateful", "cpu"),
        ("qwen3_next/ov-stateful", "cpu"),
    ],
)
def test_rewritten_tables_masks_and_states_are_equal(place, target):
    reference = exported(place)
    found = compare_structures(reference, converted(reference, target).model)
    assert found is not None
    assert found.equal == found.operators > 0


@pytest.mark.parametrize("names", [("query", "key"), ("key", "query"), ("x3", "x2")])
def test_earlier_expressions_change_no_proof(names):
    made = [ex.index(name, ex.length("length", 1)) for name in names]
    reference = exported("t5/onnx/encoder_model.onnx")
    found = compare_structures(reference, converted(reference).model)
    assert made
    assert found is not None
    assert found.equal == found.operators > 0


def test_states_are_compared_in_their_common_columns():
    reference = exported("lfm2/onnx-genai")
    result = converted(reference).model
    assert not unequal(reference, result, unpadded=True)
    found = [fault for fault in faults(result) if fault.kind in {"conv window shifted", "stale initial state"}]
    assert len(found) == 2
    assert all(unequal(reference, fault.put_into(result), unpadded=True) for fault in found)


def test_a_missing_branch_of_the_candidate_is_stated():
    reference = exported("whisper/onnx/decoder_model_merged.onnx")
    found = compare_structures(reference, converted(reference).model)
    assert found is not None
    assert found.equal == found.operators > 0
    assert found.assumed[0] == "use_cache_branch is true"


@pytest.mark.parametrize(
    ("node", "output", "reason"),
    [
        ("Cast <to = 11>", "double[b, n] logits, float[b, n] hidden", "expected f32, got f64"),
        ("Identity", "float[b, n] logits", "expected f32, got no such output"),
        ("Identity", "float[b, n] logits, float[b, n] hidden, float[b, n] more", "the reference has no such output"),
    ],
)
def test_number_and_types_of_outputs_are_compared(node, output, reason):
    """Widened logits break a runtime, and outputs that only one model has are not compared."""
    text = """<ir_version: 9, opset_import: ["": 18]>
    g (int64[b, n] input_ids) => (%s) { hidden = Cast <to = 1> (input_ids) more = Relu (hidden) logits = %s (more) }"""
    reference = "float[b, n] logits, float[b, n] hidden"
    models = [
        OnnxModel(onnx.shape_inference.infer_shapes(onnx.parser.parse_model(text % form)))
        for form in ((reference, "Identity"), (output, node))
    ]
    found = compare_structures(*models)
    assert found is not None
    assert not found.is_complete
    assert any(reason in region.reason for region in found.regions)


@pytest.mark.parametrize(("place", "target"), [("falcon_alibi/onnx", "cpu"), ("gptj/onnx", "ort")])
def test_a_changed_table_is_not_equal(place, target):
    reference = exported(place)
    result = converted(reference, target).model
    tables = [node for node in result.graph.of_op("Constant") if "slopes" in node.name or "cos_cache" in node.name]
    assert tables
    for node in tables:
        mutant = result.clone()
        held = mutant.graph.constant(node.outputs[0]).copy()
        held.flat[held.size - 1] += 0.01
        rewriter = mutant.rewriter()
        rewriter.redirect_uses(node.outputs[0], rewriter.under("fault").constant(held, element_type="f32"))
        rewriter.finish()
        assert unequal(reference, mutant, unpadded=True)


def test_rounded_positions_in_f16_are_different():
    reference = exported("llama/onnx-fp16")
    faulty = reference.clone()
    cast = next(
        node
        for node in faulty.graph.of_op("Convert")
        if (node.source().element_type, node.outputs[0].element_type) == ("i64", "f32")
    )
    rewriter = faulty.rewriter()
    write = rewriter.under("fault")
    rewriter.redirect(cast, 0, write.convert(write.convert(cast.source(), "f16"), "f32"))
    rewriter.finish()
    found = compare_structures(reference, faulty)
    assert found is not None
    assert found.equal < found.operators
    assert [region.node for region in found.regions] == ["fault/converted"]


def test_tables_rounded_to_f16_differ_from_tables_in_f32():
    reference = exported("phi3/onnx")
    result = converted(reference, "ort").model
    tables = [node for node in result.graph.of_op("Constant") if "cos_cache" in node.name]
    assert tables
    for node in tables:
        mutant = result.clone()
        held = mutant.graph.constant(node.outputs[0]).astype(numpy.float16).astype(numpy.float32)
        rewriter = mutant.rewriter()
        rewriter.redirect_uses(node.outputs[0], rewriter.under("fault").constant(held, element_type="f32"))
        rewriter.finish()
        assert unequal(reference, mutant, unpadded=True)


@pytest.mark.parametrize(
    ("model", "target"),
    [("llama", "cpu"), ("llama", "ort-genai"), ("gpt2", "ort"), ("gemma2", "ort-genai"), ("qwen3_moe", "ort")],
)
@pytest.mark.parametrize("every", [pytest.param(1, marks=pytest.mark.slow), 9])
def test_no_fault_is_proven(model, target, every):
    reference = exported(f"{model}/onnx")
    result = converted(reference, target).model
    assert not unequal(reference, result, unpadded=True)
    found = [
        fault for fault in faults(result) if not fault.equivalent and not fault.kind.endswith((*OF_PADDING, *OF_NAMES))
    ]
    assert len(found) > 30
    tried = found[::every]
    proven = [fault.kind for fault in tried if not unequal(reference, fault.put_into(result), unpadded=True)]
    assert proven == []


def test_faults_of_padding_are_left_to_numbers():
    reference = exported("llama/onnx")
    result = converted(reference, "cpu").model
    fault = next(fault for fault in faults(result) if fault.kind.endswith("more than 8 pads"))
    found = compare_structures(reference, fault.put_into(result))
    assert found is not None
    assert found.equal < found.unpadded == found.operators


def test_encoder_states_with_other_initial_values_are_not_proven():
    reference = exported("t5/ov-stateful/openvino_decoder_model.xml")
    result = converted(reference).model.clone()
    reads = [node for node in result.graph.of_op("ReadValue") if result.graph.producer(node.source()).op == "Transpose"]
    assert reads
    rewriter = result.rewriter()
    write = rewriter.under("fault")
    kind = reads[0].source().element_type
    rewriter.redirect(reads[0], 0, write.op("Add", reads[0].source(), write.number(1.0, kind)))
    rewriter.finish()
    left = [found.name for found in unequal(reference, result, unpadded=True)]
    assert any(name.endswith("before the first step") for name in left)


def test_a_variable_with_another_initial_value_is_not_proven():
    reference = exported("llama/onnx")
    result = converted(reference, "cpu").model.clone()
    read = next(iter(result.graph.of_op("ReadValue")))
    rewriter = result.rewriter()
    write = rewriter.under("fault")
    rewriter.redirect(read, 0, write.op("Add", read.source(), write.number(1.0, read.source().element_type)))
    rewriter.finish()
    assert unequal(reference, result, unpadded=True)


def summing(order: Sequence[int], *, fused: bool, seed: int = 0) -> OnnxModel:
    """Return the norm of the sum of an input and its products with weights, added in an order."""
    make, float_ = onnx.helper, onnx.TensorProto.FLOAT
    weights = numpy.random.default_rng(seed).standard_normal((len(order), 4, 4)).astype("f4")
    constants = [onnx.numpy_helper.from_array(weights[place], f"weight.{place}") for place in order]
    constants.append(onnx.numpy_helper.from_array(numpy.ones(4, "f4"), "gamma"))
    nodes, total = [], "hidden"
    for place in order:
        nodes.append(make.make_node("MatMul", ["hidden", f"weight.{place}"], [f"product.{place}"]))
        nodes.append(make.make_node("Add", [total, f"product.{place}"], [f"total.{place}"]))
        total = f"total.{place}"
    if fused:
        nodes.append(make.make_node("RMSNormalization", [total, "gamma"], ["logits"], epsilon=0.0))
    else:
        nodes += [
            make.make_node("Mul", [total, total], ["square"]),
            make.make_node("ReduceMean", ["square"], ["mean"], axes=[-1]),
            make.make_node("Sqrt", ["mean"], ["root"]),
            make.make_node("Div", [total, "root"], ["logits"]),
        ]
    ports = [make.make_tensor_value_info(name, float_, ["batch", 4]) for name in ("hidden", "logits")]
    graph = make.make_graph(nodes, "summing", ports[:1], ports[1:], constants)
    opset = make.make_opsetid("", 23 if fused else 17)
    return OnnxModel(make.make_model(graph, opset_imports=[opset], ir_version=10))


def test_long_sums_are_equal_in_any_order():
    order = range(80)
    found = compare_structures(summing(order, fused=False), summing(order[::-1], fused=True))
    assert found is not None
    assert found.equal == found.operators, found.regions
    assert unequal(summing(order, fused=False), summing(order, fused=True, seed=1), unpadded=False)


def test_a_result_may_be_made_of_many_operators():
    make, float_ = onnx.helper, onnx.TensorProto.FLOAT
    names = ["hidden", *(f"value.{place}" for place in range(4200)), "logits"]
    nodes = [make.make_node("Tanh", [source], [result]) for source, result in itertools.pairwise(names)]
    ports = [make.make_tensor_value_info(name, float_, ["batch"]) for name in ("hidden", "logits")]
    proto = make.make_model(make.make_graph(nodes, "deep", ports[:1], ports[1:]))
    found = compare_structures(OnnxModel(proto), OnnxModel(proto))
    assert found is not None
    assert found.equal == found.operators


@pytest.mark.parametrize("family", ["llama", "olmo3"])
def test_rows_without_keys_occur_in_padding_only(family):
    reference = load(exporters("transformers-onnx", family))
    found = compare_structures(reference, run_once(reference, "drop-row-guards").model)
    assert found is not None
    assert found.equal < found.unpadded == found.operators


@pytest.mark.parametrize(
    ("body", "other"),
    [
        (
            "wide = Neg (y)",
            "whole = Shape (y) one = Constant <value_int = 1> () rows = Gather (one, whole) wide = Expand (y, rows)",
        ),
        (
            "wide = Neg (y)",
            "axis = Constant <value_ints = [0]> () mean = ReduceMean <keepdims = 0> (y, axis) "
            "wide = Transpose <perm = [0, 1, 2]> (mean)",
        ),
        ("wide = Transpose <perm = [1, 0]> (z)", "wide = Transpose <perm = [1, 0]> (x)"),
    ],
    ids=["Gather from a scalar", "a result with fewer axes", "an axis too few"],
)
def test_malformed_candidates_are_not_equal(body, other):
    def model_of(body: str) -> OnnxModel:
        text = f"""<ir_version: 9, opset_import: ["": 18]>
        malformed (float[batch, length, 4] x, float[batch, length, 4] y, float[batch, length] z) => (logits, rest) {{
            {body} logits = Concat <axis = -1> (wide, wide) rest = Concat <axis = -1> (x, y)
        }}"""
        return OnnxModel(onnx.shape_inference.infer_shapes(onnx.parser.parse_model(text)))

    assert unequal(model_of(body), model_of(other), unpadded=False)


def choosing(weights: str) -> OnnxModel:
    """Return a model with an If on a computed condition, whose branches read two tensors."""
    text = f"""<ir_version: 9, opset_import: ["": 18]>
    choosing (float[batch, length, 4] x, float[batch, length, 4] y) => (float[batch, length, 8] logits) {{
        shape = Shape (x) one = Constant <value_int = 1> () length = Gather (shape, one) is_long = Greater (length, one)
        chosen = If (is_long) <
            then_branch = then () => (float[batch, length, 4] sum) {{
                weights = Constant <value_floats = {weights}> () weighed = Mul (x, weights) sum = Add (weighed, y) }},
            else_branch = else () => (float[batch, length, 4] less) {{ less = Sub (x, y) }}
        >
        logits = Concat <axis = -1> (chosen, chosen)
    }}"""
    return OnnxModel(onnx.shape_inference.infer_shapes(onnx.parser.parse_model(text)))


@pytest.mark.parametrize("read", [OnnxModel.clone, read_by_openvino])
def test_another_branch_of_an_if_is_not_equal(read):
    """An If of the main graph reads what its branches read, not their results."""
    models = [read(choosing(weights)) for weights in ("[1.0, 2.0, 3.0, 4.0]", "[1.0, 2.5, 3.0, 4.0]")]
    assert unequal(*models, unpadded=False)
