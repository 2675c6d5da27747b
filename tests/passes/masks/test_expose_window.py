"""expose-window: OpenVINO's paged attention finds the window, and the numbers stay."""

from __future__ import annotations

import numpy
import openvino
import pytest
from openvino import opset13 as ops
from openvino._offline_transformations import paged_attention_transformation
from openvino.utils.node_factory import NodeFactory
from support.attention_graphs import infer, infer_each, integers
from support.constant_outputs import constant_of
from support.decode import compiled, greedy
from support.loaded import converted, exported, openvino_after, openvino_model
from support.models import reference, vision
from support.pipelines import run_passes
from support.quick_cases import quick_product

from graphpass.analysis.caches.masks import find_masks
from graphpass.dialects.onnx.model import OnnxModel
from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.engine.manager import PassManager
from graphpass.engine.passes import Done
from graphpass.io import load
from graphpass.passes.attention.expose_position_ids import ExposePositionIds
from graphpass.passes.attention.fuse_attention import FuseAttention
from graphpass.passes.caches.make_stateful import MakeStateful
from graphpass.passes.convert.to_openvino import ToOpenVINO
from graphpass.passes.masks.expose_window import ExposeWindow
from graphpass.passes.masks.window_mask import WindowWriter, counted_tokens, find_windows, window_slots
from graphpass.runtime import open_session
from graphpass.targets.npu.windows import unpatched_window
from graphpass.verify.structure.proof import compare_structures


def exposed(model: OpenVINOModel) -> tuple[OpenVINOModel, object]:
    return run_passes(model, ExposeWindow())


def gemma() -> OpenVINOModel:
    return openvino_after(from_onnx("gemma3_text"), ExposePositionIds())


def paged_windows(model: OpenVINOModel) -> list[int]:
    """What OpenVINO's paged attention takes for each layer's window, 0 for none."""
    paged = model.ov_model.clone()
    paged_attention_transformation(paged)
    blocks = [op for op in paged.get_ordered_ops() if op.get_type_name() == "PagedAttentionExtension"]
    found = [constant_of(block.input_value(10)) for block in blocks]
    assert all(value is not None for value in found)
    return [int(value.item()) for value in found if value is not None]


def test_paged_attention_finds_the_windows():
    optimum = openvino_model("gemma3_text")
    stateful = PassManager([ExposeWindow(), MakeStateful()]).run(gemma()).model
    assert isinstance(stateful, OpenVINOModel)
    assert paged_windows(stateful) == paged_windows(optimum) == [8, 8, 8, 0]


def test_paged_attention_needs_exposed_windows():
    stateful = PassManager([MakeStateful()]).run(gemma()).model
    assert isinstance(stateful, OpenVINOModel)
    assert paged_windows(stateful) == [0, 0, 0, 0]


def test_gemma_computes_the_same():
    after, result = exposed(gemma())
    assert result.changed
    assert result.statistics["windows exposed"] == 3
    random = numpy.random.default_rng(0)
    sizes = ((14, 0), (3, 12), (1, 20))
    inputs = []
    for length, past in sizes:
        given = {
            "input_ids": random.integers(0, 320, [2, length]),
            "attention_mask": numpy.ones([2, past + length], numpy.int64),
            "position_ids": numpy.tile(numpy.arange(past, past + length), (2, 1)),
        }
        given["attention_mask"][0, :2] = 0
        for port in gemma().ov_model.inputs:
            if "past" in port.get_any_name():
                given[port.get_any_name()] = random.standard_normal([2, 2, past, 16], numpy.float32)
        inputs.append(given)
    outputs = (infer_each(model.ov_model, inputs) for model in (gemma(), after))
    for (_, past), expected, found in zip(sizes, *outputs, strict=True):
        for name, value in expected.items():
            rows = slice(2 if past == 0 else 0, None)
            numpy.testing.assert_allclose(found[name][:, rows], value[:, rows], atol=1e-6, err_msg=name)


def from_onnx(name: str) -> OpenVINOModel:
    return openvino_after(exported(f"{name}/onnx"), ToOpenVINO(), FuseAttention())


def test_a_window_stored_as_a_constant():
    """GPT-Neo cuts it from a buffer of 128 by 128 places, and adds the mask of padding."""
    after, result = exposed(from_onnx("gpt_neo"))
    assert result.changed
    assert result.statistics == {"windows exposed": 1, "masks": 1}
    assert not exposed(after)[1].changed
    stateful = PassManager([MakeStateful()]).run(after).model
    assert isinstance(stateful, OpenVINOModel)
    assert paged_windows(stateful) == [0, 8]
    expected = reference("gpt_neo")
    prompts = [expected["prompt_ids"], [17, 4, 9, *expected["prompt_ids"]]]
    assert greedy(compiled(stateful.ov_model).create_infer_request(), prompts, 12)[0] == expected["greedy_ids"]


def test_a_differently_cut_buffer_is_another_window():
    """Rows that start one place later hide one more key; the causal condition is in the mask of padding, too."""
    model = from_onnx("gpt_neo").clone()
    graph = model.graph
    squares = [node for node in graph.of_op("Constant") if node.outputs[0].shape == (1, 1, 128, 128)]
    (buffer,) = (node for node in squares if not graph.constant(node.outputs[0], 2**14)[0, 0, 20, 0])
    (rows,) = (use.node.native for use in graph.uses(buffer.outputs[0]))
    for port in (1, 2):
        moved = ops.add(rows.input_value(port), integers(1))
        rows.input(port).replace_source_output(moved.output(0))
    model.mark_edited()
    after, result = exposed(model)
    assert result.statistics == {"windows exposed": 1, "masks": 1}
    stateful = PassManager([MakeStateful()]).run(after).model
    assert isinstance(stateful, OpenVINOModel)
    assert paged_windows(stateful) == [0, 7]
    prompt = [list(range(5, 25))]
    numpy.testing.assert_allclose(open_session(after).prefill(prompt), open_session(model).prefill(prompt), atol=1e-5)


def test_windows_of_unfused_attention():
    """Gemma 2's soft cap keeps it decomposed; NPUW mends windows in one form only."""
    after, result = exposed(from_onnx("gemma2"))
    assert result.changed
    assert result.statistics["windows exposed"] == 2
    stateful = PassManager([MakeStateful()]).run(after).model
    assert isinstance(stateful, OpenVINOModel)
    expected = reference("gemma2")
    prompts = [expected["prompt_ids"], [17, 4, 9, *expected["prompt_ids"]]]
    assert greedy(compiled(stateful.ov_model).create_infer_request(), prompts, 12)[0] == expected["greedy_ids"]


def test_a_window_that_does_not_apply_within_images():
    """Gemma 3's masks also allow attention within an image; NPUW corrects the window inside of them."""
    model = load(vision("gemma3"))
    assert isinstance(model, OpenVINOModel)
    assert list(unpatched_window(model.graph))
    assert exposed(model)[0].digest() == model.digest()
    after, result = run_passes(model, ExposeWindow(partial=True))
    assert result.statistics == {"windows exposed": 1, "masks": 1}
    assert not list(unpatched_window(after.graph))
    found = compare_structures(model, after)
    assert found is not None
    assert found.equal == found.operators
    assert not run_passes(after, ExposeWindow(partial=True))[1].changed


def test_a_second_run_changes_nothing():
    after, _ = exposed(gemma())
    again, result = exposed(after)
    assert not result.changed
    assert again.digest() == after.digest()


@pytest.mark.parametrize(
    ("name", "variant"),
    [
        ("llama", "onnx"),
        ("gpt2", "onnx"),
        ("qwen3", "ov-stateless"),
        ("gemma3_text", "ov-stateful"),
        ("lfm2", "ov-stateful"),
    ],
)
def test_other_models_are_unchanged(name, variant):
    model = from_onnx(name) if variant == "onnx" else openvino_model(name, variant)
    after, result = exposed(model)
    assert not result.changed
    assert after.digest() == model.digest()


WINDOW = 3


def whole(value: int) -> openvino.Node:
    return ops.constant(numpy.array(value, numpy.int64))


#: Conditions that hold inside a window of 3, from key positions and query positions.
INSIDE = {
    "key > query + -w": lambda k, q: ops.greater(k, ops.add(q, whole(-WINDOW))),
    "key > -w + query": lambda k, q: ops.greater(k, ops.add(whole(-WINDOW), q)),
    "key > query - w": lambda k, q: ops.greater(k, ops.subtract(q, whole(WINDOW))),
    "query - w < key": lambda k, q: ops.less(ops.subtract(q, whole(WINDOW)), k),
    "key >= query - w + 1": lambda k, q: ops.greater_equal(k, ops.add(ops.subtract(q, whole(WINDOW)), whole(1))),
    "query - key < w": lambda k, q: ops.less(ops.subtract(q, k), whole(WINDOW)),
    "query - key <= w - 1": lambda k, q: ops.less_equal(ops.subtract(q, k), whole(WINDOW - 1)),
    "w > query - key": lambda k, q: ops.greater(whole(WINDOW), ops.subtract(q, k)),
    "key - query > -w": lambda k, q: ops.greater(ops.subtract(k, q), whole(-WINDOW)),
    "key + w > query": lambda k, q: ops.greater(ops.add(k, whole(WINDOW)), q),
    "not (key <= query - w)": lambda k, q: ops.logical_not(ops.less_equal(k, ops.subtract(q, whole(WINDOW)))),
}

#: Conditions that look alike but hold no window.
ELSE = {
    "key - 1 < query": lambda k, q: ops.greater(q, ops.add(k, whole(-1))),
    "key <= query": lambda k, q: ops.less_equal(k, q),
    "key < query + 1": lambda k, q: ops.less(k, ops.add(q, whole(1))),
    "query + 1 > key": lambda k, q: ops.greater(ops.add(q, whole(1)), k),
    "query - key > -1": lambda k, q: ops.greater(ops.subtract(q, k), whole(-1)),
    "key > query + 2": lambda k, q: ops.greater(k, ops.add(q, whole(2))),
    "key < query - w": lambda k, q: ops.less(k, ops.subtract(q, whole(WINDOW))),
    "key > 2": lambda k, q: ops.greater(k, whole(2)),
    "key == query": lambda k, q: ops.equal(k, q),
    "real": lambda k, q: ops.greater(
        ops.convert(k, "f32"), ops.subtract(ops.convert(q, "f32"), ops.constant(numpy.float32(2.5)))
    ),
}


def windowed(condition, form: str = "select", element_type: str = "f32", sink: bool = False) -> OpenVINOModel:
    """Attention with a cache whose mask joins ``condition``, a causal one and padding, with a sink or without."""
    kind = getattr(openvino.Type, element_type)
    ids, padding = (ops.parameter(openvino.PartialShape([-1, -1]), openvino.Type.i64) for _ in range(2))
    for port, name in ((ids, "input_ids"), (padding, "attention_mask")):
        port.output(0).set_names({name})
    x = ops.parameter(openvino.PartialShape([-1, 2, -1, 4]), kind)
    x.output(0).set_names({"x"})
    pasts = [ops.parameter(openvino.PartialShape([-1, 2, -1, 4]), kind) for _ in range(2)]
    caches = [ops.concat([read, x], 2) for read in pasts]
    for name, read in zip(("key", "value"), pasts, strict=True):
        read.output(0).set_names({f"past_{name}"})
    past = ops.gather(ops.shape_of(pasts[0]), whole(2), whole(0))
    length = ops.add(past, ops.gather(ops.shape_of(ids), whole(1), whole(0)))
    keys = ops.unsqueeze(ops.range(whole(0), length, whole(1), "i64"), integers(0, 1, 2))
    queries = ops.unsqueeze(ops.unsqueeze(ops.range(past, length, whole(1), "i64"), integers(0, 1)), integers(3))
    causal = ops.less_equal(keys, queries)
    seen = ops.unsqueeze(ops.convert(padding, "boolean"), integers(1, 2))
    inside = condition(keys, queries)
    kept, masked = (ops.constant(value, dtype=kind) for value in (0.0, -65504.0))
    if form == "stored in f16":
        halves = (ops.constant(value, dtype=openvino.Type.f16) for value in (0.0, -65504.0))
        kept, masked = (ops.convert(half, element_type) for half in halves)
    sizes = [ops.unsqueeze(size, whole(0)) for size in (ops.subtract(length, past), length)]
    count = ops.gather(ops.shape_of(ids), integers(0), whole(0))
    shape = ops.concat([count, integers(1), *sizes], 0)
    bounds = integers(0), ops.unsqueeze(length, whole(0)), integers(1), integers(3)
    joined = ops.logical_and(ops.logical_and(inside, causal), seen)
    if form == "or":
        hidden = ops.logical_or(ops.logical_or(ops.logical_not(inside), ops.logical_not(causal)), ops.logical_not(seen))
        mask = ops.select(hidden, masked, kept)
    elif form == "inverted":
        mask = ops.select(joined, masked, kept)
    elif form == "sliced":
        mask = ops.slice(ops.select(ops.broadcast(joined, shape), kept, masked), *bounds)
    elif form == "sliced inside":
        mask = ops.select(ops.broadcast(ops.slice(joined, *bounds), shape), kept, masked)
    elif form == "sliced twice":
        mask = ops.slice(ops.slice(ops.select(ops.broadcast(joined, shape), kept, masked), *bounds), *bounds)
    elif form.startswith("sum"):
        less = ops.constant(-2.0 if form == "sum with a bias" else -numpy.inf, dtype=kind)
        window = ops.select(ops.logical_and(inside, causal), kept, masked)
        mask = ops.maximum(ops.add(window, ops.select(seen, kept, less)), masked)
    elif form == "clamped":
        lowest = ops.constant(-numpy.inf, dtype=kind)
        mask = ops.maximum(ops.select(joined, kept, lowest), masked)
    else:
        mask = ops.select(joined, kept, masked)
    scale = ops.constant(0.5, dtype=kind)
    inputs = [*(node.output(0) for node in (x, *caches, mask, scale))]
    if sink:
        inputs.append(ops.constant([[[[0.5]], [[2.0]]]], dtype=kind).output(0))
    result = ops.result(NodeFactory("opset13").create("ScaledDotProductAttention", inputs, {"causal": False}))
    result.output(0).set_names({"attended"})
    presents = [ops.result(cache) for cache in caches]
    for name, present in zip(("key", "value"), presents, strict=True):
        present.output(0).set_names({f"present_{name}"})
    return OpenVINOModel(openvino.Model([result, *presents], [ids, padding, x, *pasts]))


def check(model: OpenVINOModel) -> object:
    after, result = exposed(model)
    kind = model.ov_model.input("x").get_element_type().to_dtype()
    x = numpy.random.default_rng(0).standard_normal([2, 2, 10, 4]).astype(kind)
    padding = numpy.ones([2, 10], numpy.int64)
    padding[0, :2] = 0
    past = {f"past_{name}": numpy.zeros([2, 2, 0, 4], kind) for name in ("key", "value")}
    for start, stop in ((0, 7), (7, 8), (8, 10)):
        new = {"input_ids": numpy.zeros([2, stop - start], numpy.int64), "x": x[:, :, start:stop]}
        given = {"attention_mask": padding[:, :stop], **new, **past}
        expected, found = infer(model.ov_model, given), infer(after.ov_model, given)
        real = slice(2 if start == 0 else 0, None)
        numpy.testing.assert_allclose(found["attended"][:, :, real], expected["attended"][:, :, real], atol=1e-6)
        past = {f"past_{name}": found[f"present_{name}"] for name in ("key", "value")}
    again, second = exposed(after)
    assert not second.changed
    assert again.digest() == after.digest()
    return result


def offset(model: OpenVINOModel) -> int:
    (found,) = [op for op in exposed(model)[0].ov_model.get_ops() if op.get_friendly_name().endswith("/offset")]
    return int(found.data.item())


@pytest.mark.parametrize(
    ("condition", "form"), quick_product(list(INSIDE), ["select", "or", "sliced", "clamped", "sum", "stored in f16"])
)
def test_windows_of_each_condition_are_exposed(condition, form):
    model = windowed(INSIDE[condition], form)
    assert check(model).changed
    assert offset(model) == -WINDOW


@pytest.mark.parametrize("form", ["select", "sliced", "clamped"])
def test_a_window_beside_a_sink_is_exposed(form):
    model = windowed(INSIDE["key > query - w"], form, sink=True)
    assert check(model).changed
    assert offset(model) == -WINDOW


def test_a_window_in_f16_is_exposed():
    model = windowed(INSIDE["key > query - w"], element_type="f16")
    assert check(model).changed


@pytest.mark.parametrize("condition", ELSE)
def test_other_comparisons_are_left(condition):
    assert not check(windowed(ELSE[condition])).changed


@pytest.mark.parametrize("form", ["sliced inside", "sliced twice"])
def test_full_slices(form):
    assert check(windowed(INSIDE["key > query - w"], form)).changed


@pytest.mark.parametrize("form", ["inverted", "sum with a bias"])
def test_other_masks_are_left(form):
    assert not check(windowed(INSIDE["key > query - w"], form)).changed


def counting_tokens() -> OnnxModel:
    """Return mistral whose windows count the tokens that attention_mask shows; its causal mask compares slots."""
    model = exported("mistral_sw8/onnx").clone()
    rewriter = model.rewriter()
    places = window_slots(model, rewriter)
    assert places is not None
    writer = WindowWriter(rewriter, counted_tokens(model, rewriter), places, "LogicalAnd")
    for window in find_windows(model):
        writer.replace(window)
    rewriter.finish()
    return model


@pytest.mark.parametrize("by_slots", [True, False])
def test_causality_by_tokens_equals_causality_by_slots(by_slots):
    """Masks of Gemma 3 by mobius hold both, those of gpt-oss tokens alone."""
    model = counting_tokens()
    rewriter = model.rewriter()
    (causal,) = (node.outputs[0] for node in model.graph.nodes if node.name.endswith("/causal"))
    write = rewriter.under("by_tokens")
    counted = write.op("LessEqual", *counted_tokens(model, rewriter))
    rewriter.redirect_uses(causal, write.op("LogicalAnd", causal, counted) if by_slots else counted)
    rewriter.finish()
    masks = model.analysis(find_masks)
    assert all(mask.is_causal and mask.window_of_tokens == 8 and not mask.residue for mask in masks)


def test_a_count_of_padding_is_not_causal():
    model = counting_tokens()
    rewriter = model.rewriter()
    (causal,) = (node.outputs[0] for node in model.graph.nodes if node.name.endswith("/causal"))
    write = rewriter.under("by_padding")
    counted = write.op("GreaterEqual", *counted_tokens(model, rewriter))
    rewriter.redirect_uses(causal, counted)
    rewriter.finish()
    assert not any(mask.is_causal for mask in model.analysis(find_masks))


@pytest.mark.parametrize("target", ["cpu", "npu", "ort", "paged"])
def test_windows_of_tokens_count_tokens(target):
    model = counting_tokens()
    assert {mask.window_of_tokens for mask in model.analysis(find_masks)} == {8}
    result = converted(model, target).model
    proof = compare_structures(model, result)
    assert proof is not None
    assert proof.equal == proof.operators, proof.regions
    if target == "paged":
        assert paged_windows(result) == [8, 8]
        assert run_passes(result, ExposeWindow())[1] == Done()


def test_a_window_of_slots_is_another():
    proof = compare_structures(counting_tokens(), exported("mistral_sw8/onnx"))
    assert proof is not None
    assert proof.equal < proof.unpadded == proof.operators
