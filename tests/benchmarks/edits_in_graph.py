"""What inputs that edit caches cost a CPU step: `python tests/benchmarks/edits_in_graph.py [CONTEXT ...]`.

Nothing is edited: that is what every step pays. A decoder of 8 layers (16 heads, 4 key heads of 64, random weights)
takes steps behind 1024 cached tokens

    plain             as the target cpu has it
    tree mask         with add-tree-mask, the tree empty
    trim              with insert-reorder{form=cut}
    gpu               with insert-reorder{form=gpu}, no slots named
    compact           with insert-reorder{form=compact}, no slots named
    provider          with the Gather and ScatterElementsUpdate of ONNX Runtime's OpenVINO provider, no slots named

and one of 8 layers with recurrent states [16, 64, 64] takes steps plain and with insert-snapshot{slots=8}. Steps of all
are interleaved; what counts are the ratios of the medians to plain.
"""

from __future__ import annotations

import statistics
import sys
import time

import numpy
import openvino
from openvino import opset13 as ops

import graphpass
from graphpass.dialects.openvino.model import OpenVINOModel

LAYERS, HEADS, KEY_HEADS, HEAD_DIM, VOCABULARY = 8, 16, 4, 64, 2048
HIDDEN = HEADS * HEAD_DIM
STEPS = 30
EXACT = {"INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f32"}

PIPELINES = {
    "plain": "",
    "tree mask": "add-tree-mask",
    "trim": "insert-reorder{form=cut}",
    "gpu": "insert-reorder",
    "compact": "insert-reorder{form=compact}",
    "provider": "",
}


class Builder:
    """Inputs, outputs and random weights of a model."""

    def __init__(self) -> None:
        self.parameters: list[openvino.Node] = []
        self.results: list[openvino.Node] = []
        self._random = numpy.random.default_rng(1)

    def input(self, name: str, element_type: str, shape: list[int]) -> openvino.Node:
        node = ops.parameter(openvino.PartialShape(shape), getattr(openvino.Type, element_type), name=name)
        node.output(0).set_names({name})
        self.parameters.append(node)
        return node

    def output(self, name: str, node: openvino.Node) -> None:
        result = ops.result(node)
        result.set_friendly_name(name)
        node.output(0).add_names({name})
        self.results.append(result)

    def weight(self, *shape: int) -> openvino.Node:
        return ops.constant(self._random.standard_normal(shape).astype(numpy.float32) * 0.02)

    def heads(self, hidden: openvino.Node, count: int) -> openvino.Node:
        flat = ops.matmul(hidden, self.weight(HIDDEN, count * HEAD_DIM), False, False)
        return ops.transpose(ops.reshape(flat, ops.constant([0, 0, count, HEAD_DIM]), True), ops.constant([0, 2, 1, 3]))

    def back(self, hidden: openvino.Node, read: openvino.Node) -> openvino.Node:
        merged = ops.reshape(ops.transpose(read, ops.constant([0, 2, 1, 3])), ops.constant([0, 0, HIDDEN]), True)
        return ops.add(hidden, ops.matmul(merged, self.weight(HIDDEN, HIDDEN), False, False))

    def model(self, hidden: openvino.Node) -> OpenVINOModel:
        self.output("logits", ops.matmul(hidden, self.weight(HIDDEN, VOCABULARY), False, False))
        native = openvino.Model(self.results, self.parameters, "measured")
        stateful = graphpass.PassManager(graphpass.parse("make-stateful")).run(OpenVINOModel(native)).model
        assert isinstance(stateful, OpenVINOModel)
        return stateful


def attending() -> OpenVINOModel:
    build = Builder()
    ids, mask = build.input("input_ids", "i64", [-1, -1]), build.input("attention_mask", "i64", [-1, -1])
    positions = build.input("position_ids", "i64", [-1, -1])
    new, total = (ops.gather(ops.shape_of(one), ops.constant(1), ops.constant(0)) for one in (ids, mask))
    columns = ops.unsqueeze(ops.range(ops.constant(0), total, ops.constant(1), "i64"), ops.constant(0))
    rows = ops.unsqueeze(ops.range(ops.subtract(total, new), total, ops.constant(1), "i64"), ops.constant(1))
    causal = ops.unsqueeze(ops.less_equal(columns, rows), ops.constant([0, 1]))
    seen = ops.logical_and(causal, ops.equal(ops.unsqueeze(mask, ops.constant([1, 2])), ops.constant(1)))
    added = ops.select(seen, ops.constant(numpy.float32(0)), ops.constant(numpy.float32(-1e9)))
    hidden = ops.gather(build.weight(VOCABULARY, HIDDEN), ids, ops.constant(0))
    hidden = ops.add(hidden, ops.gather(build.weight(32768, HIDDEN), positions, ops.constant(0)))
    for layer in range(LAYERS):
        wholes = []
        for role in ("key", "value"):
            past = build.input(f"past_key_values.{layer}.{role}", "f32", [-1, KEY_HEADS, -1, HEAD_DIM])
            whole = ops.concat([past, build.heads(hidden, KEY_HEADS)], 2)
            build.output(f"present.{layer}.{role}", whole)
            copies = ops.unsqueeze(whole, ops.constant([2]))
            copies = ops.broadcast(
                copies, ops.constant([1, 1, HEADS // KEY_HEADS, 1, 1]), broadcast_spec="BIDIRECTIONAL"
            )
            wholes.append(ops.reshape(copies, ops.constant([0, HEADS, -1, HEAD_DIM]), True))
        read = ops.scaled_dot_product_attention(build.heads(hidden, HEADS), *wholes, added)
        hidden = build.back(hidden, read)
    return build.model(hidden)


def recurrent() -> OpenVINOModel:
    build = Builder()
    hidden = ops.gather(build.weight(VOCABULARY, HIDDEN), build.input("input_ids", "i64", [-1, 1]), ops.constant(0))
    for layer in range(LAYERS):
        past = build.input(f"cache_params.past.ssm.{layer}", "f32", [-1, HEADS, HEAD_DIM, HEAD_DIM])
        query, key, value = (build.heads(hidden, HEADS) for _ in range(3))
        state = ops.multiply(past, ops.constant(numpy.float32(0.9)))
        state = ops.add(state, ops.matmul(key, value, True, False))
        build.output(f"cache_params.present.ssm.{layer}", state)
        hidden = build.back(hidden, ops.matmul(query, state, False, False))
    return build.model(hidden)


def with_provider(model: OpenVINOModel) -> OpenVINOModel:
    """What ov_stateful_patch_utils.cc inserts, between the beam Gather and the Concat."""
    copy = model.clone()
    native = copy.ov_model
    source = ops.parameter([-1], openvino.Type.i32, name="src_idx")
    destination = ops.parameter([-1, KEY_HEADS, -1, HEAD_DIM], openvino.Type.i32, name="dst_idx")
    for node, name in ((source, "src_idx"), (destination, "dst_idx")):
        node.output(0).set_names({name})
    for read in [op for op in native.get_ops() if op.get_type_name() == "ReadValue"]:
        beams = next(iter(read.output(0).get_target_inputs())).get_node()
        readers = beams.output(0).get_target_inputs()
        moved = ops.gather(beams, source, ops.constant(2))
        updated = ops.scatter_elements_update(beams, destination, moved, ops.constant(2))
        for reader in readers:
            reader.replace_source_output(updated.output(0))
    native.add_parameters([source, destination])
    native.validate_nodes_and_infer_types()
    copy.mark_edited()
    return copy


class Decoding:
    """One model, and how long its steps take."""

    def __init__(self, model: OpenVINOModel, context: int) -> None:
        self._request = openvino.Core().compile_model(model.ov_model, "CPU", EXACT).create_infer_request()
        ports = self._request.model_inputs
        self._ranks = {name: len(port.get_partial_shape()) for port in ports for name in port.get_names()}
        self._seen = 0
        self.seconds: list[float] = []
        if context:
            self.step(context)
            self.seconds.clear()

    def step(self, length: int = 1) -> None:
        self._seen += length
        feeds = {
            "input_ids": numpy.full([1, length], 7),
            "attention_mask": numpy.ones([1, self._seen], numpy.int64),
            "position_ids": numpy.arange(self._seen - length, self._seen)[None],
            "beam_idx": numpy.zeros(1, numpy.int32),
            "src_idx": numpy.zeros(0, numpy.int32),
            "dst_idx": numpy.zeros(
                [1, KEY_HEADS, 0, HEAD_DIM] if self._ranks.get("dst_idx") == 4 else [0], numpy.int32
            ),
            "tree_mask": numpy.zeros([1, 0, 0], numpy.float32),
            "steps_back": numpy.zeros(1, numpy.int32),
        }
        given = {name: array for name, array in feeds.items() if name in self._ranks}
        start = time.perf_counter()
        self._request.infer(given)
        self.seconds.append(time.perf_counter() - start)


def edited(model: OpenVINOModel, pipeline: str) -> OpenVINOModel:
    made = graphpass.PassManager(graphpass.parse(pipeline)).run(model).model
    assert isinstance(made, OpenVINOModel)
    return made


def compare(decodings: dict[str, Decoding], title: str) -> None:
    for _ in range(STEPS):
        for decoding in decodings.values():
            decoding.step()
    medians = {name: statistics.median(decoding.seconds) for name, decoding in decodings.items()}
    plain = medians["plain"]
    print(title)
    for name, seconds in medians.items():
        print(f"  {name:<12} {1000 * seconds:7.2f} ms  {seconds / plain:5.2f} of plain")


def main(contexts: list[int]) -> None:
    base = attending()
    for context in contexts:
        models = {name: edited(base, pipeline) for name, pipeline in PIPELINES.items()}
        models["provider"] = with_provider(base)
        compare({name: Decoding(model, context) for name, model in models.items()}, f"{context} cached tokens")
    base = recurrent()
    models = {
        "plain": base,
        **{f"{slots} slots": edited(base, f"insert-snapshot{{slots={slots}}}") for slots in (1, 8)},
    }
    compare({name: Decoding(model, 0) for name, model in models.items()}, "recurrent states, insert-snapshot")


if __name__ == "__main__":
    main([int(argument) for argument in sys.argv[1:]] or [1024])
