"""Read off a graph the lengths at which it changes what it does."""

import numpy
import pytest
from support.models import export

from graphpass.analysis.lengths.thresholds import find_thresholds
from graphpass.engine.manager import PassManager
from graphpass.engine.pipeline import parse, parse_target
from graphpass.io import load


@pytest.mark.parametrize(
    ("name", "variant", "lengths"),
    [
        ("llama", "onnx", []),
        ("llama", "onnx-genai", [(512, True)]),  # angles that attention looks up itself
        ("mistral_sw8", "onnx", [(8, False)]),  # a sliding window
        ("gemma3_text", "ov-stateful", [(8, False)]),
        ("gpt2", "onnx", [(256, True)]),  # learned positions
        ("opt", "onnx", [(128, True)]),  # looked up two rows further on
        ("gpt2_upcast", "onnx", [(128, True)]),  # -65504 in masks is none
        ("zamba2", "ov-stateful", [(4, False), (8, False)]),  # columns of a convolution, chunks of a scan
    ],
)
def test_thresholds_of_exports_are_found(name, variant, lengths):
    assert [(threshold.length, threshold.ends) for threshold in find_thresholds(load(export(name, variant)))] == lengths


def test_tables_of_rotations_outside_of_attention_end():
    """Heads of 8 are rotated by an operator of their own."""
    model = load(export("llama_12l", "onnx"))
    result = PassManager(parse("fuse-group-query-attention{context=96}")).run(model).model
    assert any(result.graph.of_op("RotaryEmbedding"))
    assert (96, True) in {(threshold.length, threshold.ends) for threshold in find_thresholds(result)}


@pytest.mark.parametrize("target", ["cpu", "gpu", pytest.param("npu", marks=pytest.mark.slow)])
def test_passes_keep_thresholds(target):
    model = load(export("mistral_sw8", "onnx"))
    result = PassManager(parse_target(target).pipeline(model)).run(model).model
    assert 8 in {threshold.length for threshold in find_thresholds(result)}


@pytest.mark.parametrize("op", ["GreaterEqual", "LessEqual"])
@pytest.mark.parametrize("variant", ["onnx", "ov-stateful"])
def test_thresholds_of_both_dialects_are_found(variant, op):
    """ONNX calls these operators GreaterOrEqual and LessOrEqual."""
    model = load(export("llama", variant))
    rewriter = model.rewriter()
    write, tokens = rewriter.under("threshold"), model.graph.parameters["input_ids"]
    is_long = write.convert(write.op(op, write.size(tokens, 1), 37), "i64")
    once = write.op("Divide", write.op("Add", is_long, 1), write.op("Add", is_long, 1))
    rewriter.redirect_uses(tokens, write.op("Multiply", tokens, once), lambda use: use.node.op != "ShapeOf")
    rewriter.finish()
    model.mark_edited()
    assert 37 in {threshold.length for threshold in find_thresholds(model)}


@pytest.mark.parametrize("is_bounded", [False, True])
def test_tables_sliced_from_their_end_on_end(is_bounded):
    """A table of 40 rows, as that of ALiBi in MPT: the start of a slice is negative for 41 tokens, unless bounded."""
    model = load(export("llama", "ov-stateful"))
    rewriter = model.rewriter()
    write, tokens = rewriter.under("table"), model.graph.parameters["input_ids"]
    count, table = write.constant(numpy.array([40]), "count"), numpy.zeros([1, 40], numpy.int64)
    length = write.op("Minimum", write.size(tokens, 1), count) if is_bounded else write.size(tokens, 1)
    shift = write.slice(write.constant(table, "rows"), write.op("Subtract", count, length), None, axis=1)
    rewriter.redirect_uses(tokens, write.op("Add", tokens, shift), lambda use: use.node.op != "ShapeOf")
    rewriter.finish()
    model.mark_edited()
    assert (40, not is_bounded) in {(threshold.length, threshold.ends) for threshold in find_thresholds(model)}


def test_thresholds_of_comparisons_and_tables():
    """The first of both alone left prompts beyond the table, which its attention refuses."""
    model = load(export("llama", "onnx-genai"))
    rewriter = model.rewriter()
    write, tokens = rewriter.under("a first name"), model.graph.parameters["input_ids"]
    is_long = write.convert(write.op("GreaterEqual", write.size(tokens, 1), 512), "i64")
    rewriter.redirect_uses(tokens, write.op("Add", tokens, is_long), lambda use: use.node.op != "ShapeOf")
    rewriter.finish()
    model.mark_edited()
    (both,) = [threshold for threshold in find_thresholds(model) if threshold.length == 512]
    assert both.ends
    assert both.changes
