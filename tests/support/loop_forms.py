"""Caches that a Loop or Scan carries, slices or stacks, built with ONNX; each runs in ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy
import openvino
from onnx import TensorProto, helper
from openvino import opset6, opset13
from openvino.op.util import Variable, VariableInfo

from graphpass.dialects.onnx.model import OnnxModel
from graphpass.dialects.openvino.model import OpenVINOModel
from support.graph_builder import HEADS, HIDDEN, ROOM, SIZE, VOCABULARY, GraphBuilder, builder_with_hidden_states

LAYERS, WIDTH = 2, 4

ROLES = ("key", "value")

STATE = ["B", HEADS, SIZE, SIZE]


def write_logits(build: GraphBuilder, rows: str, size: int) -> None:
    build.output(build.op("MatMul", rows, build.weight(size, VOCABULARY)), "logits", ["B", "N", VOCABULARY])


def recurrent(loop: str = "Scan", shapes: bool = True) -> OnnxModel:
    """A matrix a head, decayed and added to at each token of a step."""
    build = builder_with_hidden_states("input_ids")
    state = build.input("past", STATE)
    key, value, query = (build.new([0, 0, HEADS, SIZE]) for _ in range(3))
    final, out = over_tokens(build, loop, state, STATE if shapes else None, [key, value, query], remember)
    build.present(final, "present", STATE)
    write_logits(build, build.op("Reshape", out, build.ints(0, 0, HEADS * SIZE)), HEADS * SIZE)
    return build.model()


def deep(layers: int, loop: str = "Loop") -> OnnxModel:
    """Layers with a matrix a head each, kept up in a loop over the tokens, and products with weights between them."""
    build = builder_with_hidden_states("input_ids")
    hidden = "hidden"
    presents = []
    for layer in range(layers):
        parts = [
            build.op(
                "Reshape", build.op("MatMul", hidden, build.weight(HIDDEN, HEADS * SIZE)), build.ints(0, 0, HEADS, SIZE)
            )
            for _ in range(3)
        ]
        state = build.input(f"past_{layer}", STATE)
        final, out = over_tokens(build, loop, state, STATE, parts, remember, f"{loop.lower()}_{layer}")
        presents.append(final)
        rows = build.op("Reshape", out, build.ints(0, 0, HEADS * SIZE))
        hidden = build.op("Add", hidden, build.op("MatMul", rows, build.weight(HEADS * SIZE, HIDDEN)))
    write_logits(build, hidden, HIDDEN)
    for layer, present in enumerate(presents):
        build.present(present, f"present_{layer}", STATE)
    return build.model()


def remember(body: GraphBuilder, state: str, token: list[str]) -> tuple[str, str]:
    """What one token leaves in ``state``, and what is read from it; the token's tensors are [batch, heads, size]."""
    key, value, query = token
    added = body.op("Mul", body.op("Unsqueeze", key, body.ints(3)), body.op("Unsqueeze", value, body.ints(2)))
    state = body.op("Add", body.op("Mul", state, body.constant(numpy.float32(0.9))), added)
    read = body.op("Mul", state, body.op("Unsqueeze", query, body.ints(3)))
    return state, body.op("ReduceSum", read, body.ints(2), keepdims=0)


def convolved(loop: str = "Scan") -> OnnxModel:
    """A window of the last columns, into which each token of a step shifts its own."""
    build = builder_with_hidden_states("input_ids")
    window = build.input("past", ["B", HIDDEN, WIDTH])
    columns = build.op("MatMul", "hidden", build.weight(HIDDEN, HIDDEN))
    final, out = over_tokens(build, loop, window, ["B", HIDDEN, WIDTH], [columns], _shift)
    build.present(final, "present", ["B", HIDDEN, WIDTH])
    write_logits(build, out, HIDDEN)
    return build.model()


def _shift(body: GraphBuilder, window: str, token: list[str]) -> tuple[str, str]:
    kept = body.op("Slice", window, body.ints(1), body.ints(WIDTH), body.ints(2))
    window = body.op("Concat", kept, body.op("Unsqueeze", token[0], body.ints(2)), axis=2)
    return window, body.op("ReduceSum", body.op("Mul", window, body.weight(HIDDEN, WIDTH)), body.ints(2), keepdims=0)


def over_tokens(
    build: GraphBuilder, loop: str, state: str, shape: Any, tokens: list[str], work: Any, name: str = ""
) -> Any:
    """``work`` over axis 1 of ``tokens``: what it leaves in ``state``, and what it gives, stacked on axis 1."""
    if loop == "Loop":

        def iterate(body: GraphBuilder, number: str, carried: list[str]) -> list[str]:
            return list(work(body, carried[0], [body.op("Gather", token, number, axis=1) for token in tokens]))

        final, stacked = looped(build, _length(build), [(state, shape)], iterate, 1, name or "loop")
        return final, build.op("Transpose", stacked, perm=[1, 0, *range(2, 4 if len(tokens) > 1 else 3)])
    body = build.body(name or "scan")
    carried = body.input(f"{body.prefix}state", shape)
    token = ["B", HEADS, SIZE] if len(tokens) > 1 else ["B", HIDDEN]
    parts = [body.input(f"{body.prefix}part_{port}", token) for port in range(len(tokens))]
    body.gives(*work(body, carried, parts))
    axes = {"scan_input_axes": [1] * len(tokens), "scan_output_axes": [1]}
    return build.op("Scan", state, *tokens, outputs=2, body=body.graph(), num_scan_inputs=len(tokens), **axes)


def looped(
    build: GraphBuilder, count: str, states: list[tuple[str, Any]], iterate: Any, stacked: int, name: str = "loop"
) -> list[str]:
    """A Loop of ``count`` iterations that carries ``states`` (value, shape in the body) and stacks further results.

    ``iterate(body, number, carried)`` gives what is carried on and what is stacked.
    """
    body = build.body(name)
    number, go = f"{body.prefix}number", f"{body.prefix}go"
    body._inputs.append(helper.make_tensor_value_info(number, TensorProto.INT64, []))
    body._inputs.append(helper.make_tensor_value_info(go, TensorProto.BOOL, []))
    carried = [body.input(f"{body.prefix}state_{port}", shape) for port, (_, shape) in enumerate(states)]
    go_on = body.op("Identity", go)
    body._outputs.append(helper.make_tensor_value_info(go_on, TensorProto.BOOL, []))
    body.gives(*iterate(body, number, carried))
    initial = [value for value, _ in states]
    outputs = build.op("Loop", count, "", *initial, outputs=len(states) + stacked, body=body.graph())
    return [outputs] if isinstance(outputs, str) else outputs


def _length(build: GraphBuilder) -> str:
    """Return the number of tokens of a step."""
    return build.op("Gather", build.op("Shape", "input_ids"), build.constant(numpy.int64(1)), axis=0)


def appended(shapes: bool = True) -> OnnxModel:
    """Keys and values to which each token of a step appends its own, and over which it attends."""
    build = builder_with_hidden_states("input_ids")
    pasts = build.pasts(["B", HEADS, "P", SIZE])
    tokens = [build.heads() for _ in range(3)]

    def iterate(body: GraphBuilder, number: str, carried: list[str]) -> list[str]:
        first = body.op("Unsqueeze", number, body.ints(0))
        key, value, query = (body.op("Gather", token, first, axis=2) for token in tokens)
        whole = [body.op("Concat", past, new, axis=2) for past, new in zip(carried, (key, value), strict=True)]
        return [*whole, body.op("Squeeze", body.attend(*whole, query=query), body.ints(2))]

    shape = ["B", HEADS, None, SIZE] if shapes else None
    *presents, rows = looped(build, _length(build), [(past, shape) for past in pasts], iterate, 1)
    build.presents(*presents, ["B", HEADS, "T", SIZE])
    rows = build.op("Transpose", rows, perm=[1, 0, 2, 3])
    write_logits(build, build.op("Reshape", rows, build.ints(0, 0, HEADS * SIZE)), HEADS * SIZE)
    return build.model()


def _parted(body: GraphBuilder, hidden: str, weight: str) -> str:
    parted = body.op("Reshape", body.op("MatMul", hidden, weight), body.ints(0, 0, HEADS, SIZE))
    return body.op("Transpose", parted, perm=[0, 2, 1, 3])


def _mixed(body: GraphBuilder, hidden: str, out: str, weight: str) -> str:
    """The residual stream behind a layer."""
    rows = body.op("Reshape", body.op("Transpose", out, perm=[0, 2, 1, 3]), body.ints(0, 0, HEADS * SIZE))
    return body.op("Add", hidden, body.op("MatMul", rows, weight))


def over_layers() -> OnnxModel:
    """All layers' keys and values in one tensor each, which a Scan over the layers takes apart with their weights."""
    build = builder_with_hidden_states("input_ids")
    pasts = build.pasts([LAYERS, "B", HEADS, "P", SIZE])
    weights = [build.weight(LAYERS, HIDDEN, HEADS * SIZE) for _ in range(3)]
    weights.append(build.weight(LAYERS, HEADS * SIZE, HIDDEN))
    body = build.body("scan")
    hidden = body.input("layer_hidden", ["B", "N", HIDDEN])
    caches = [body.input(f"layer_{role}", ["B", HEADS, "P", SIZE]) for role in ROLES]
    mine = [body.input(f"layer_weight_{port}", [HIDDEN, HEADS * SIZE]) for port in range(3)]
    last = body.input("layer_weight_out", [HEADS * SIZE, HIDDEN])
    key, value, query = (_parted(body, hidden, weight) for weight in mine)
    whole = [body.op("Concat", past, new, axis=2) for past, new in zip(caches, (key, value), strict=True)]
    body.gives(_mixed(body, hidden, body.attend(*whole, query=query), last), *whole)
    outputs = build.op("Scan", "hidden", *pasts, *weights, outputs=3, body=body.graph(), num_scan_inputs=6)
    build.presents(*outputs[1:], [LAYERS, "B", HEADS, "T", SIZE])
    write_logits(build, outputs[0], HIDDEN)
    return build.model()


def layers_in_place() -> OnnxModel:
    """All layers' keys and values in buffers of a fixed capacity, which a Loop over the layers carries and writes."""
    build = builder_with_hidden_states("input_ids")
    place = build.input("place", ["N"], "i64")
    whole = [LAYERS, "B", HEADS, ROOM, SIZE]
    pasts = build.pasts(whole)
    weights = [build.weight(LAYERS, HIDDEN, HEADS * SIZE) for _ in range(3)]
    weights.append(build.weight(LAYERS, HEADS * SIZE, HIDDEN))

    def iterate(body: GraphBuilder, number: str, carried: list[str]) -> list[str]:
        hidden, *buffers = carried
        *mine, last = (body.op("Gather", weight, number, axis=0) for weight in weights)
        new = [_parted(body, hidden, weight) for weight in mine]
        layers = []
        for buffer, tokens in zip(buffers, new, strict=False):
            layer = body.op("Gather", buffer, number, axis=0)
            where = body.op("Reshape", place, body.ints(1, 1, -1, 1))
            where = body.op("Expand", where, body.op("Shape", tokens))
            layers.append(body.op("ScatterElements", layer, where, tokens, axis=2))
        which = body.op("Reshape", number, body.ints(1, 1))
        written = [
            body.op("ScatterND", buffer, which, body.op("Unsqueeze", layer, body.ints(0)))
            for buffer, layer in zip(buffers, layers, strict=True)
        ]
        return [_mixed(body, hidden, body.attend(*layers, query=new[2]), last), *written]

    count = build.constant(numpy.int64(LAYERS))
    states = [("hidden", ["B", "N", HIDDEN]), *((past, whole) for past in pasts)]
    out, *presents = looped(build, count, states, iterate, 0)
    build.presents(*presents, whole)
    write_logits(build, out, HIDDEN)
    return build.model()


def states_of_layers(loop: str = "Scan") -> OnnxModel:
    """All layers' matrices in one tensor, taken apart by a loop over the layers; in it, a loop over the tokens."""
    build = builder_with_hidden_states("input_ids")
    past = build.input("past", [LAYERS, *STATE])
    decays = build.weight(LAYERS, 1)
    tokens = [build.new([0, 0, HEADS, SIZE]) for _ in range(3)]

    def layer(body: GraphBuilder, state: str, decay: str) -> Any:
        return over_tokens(body, loop, state, STATE, [body.op("Mul", tokens[0], decay), *tokens[1:]], remember)

    if loop == "Scan":
        body = build.body("layers")
        body.gives(*layer(body, body.input("layer_state", STATE), body.input("layer_decay", [1])))
        present, outs = build.op("Scan", past, decays, outputs=2, body=body.graph(), num_scan_inputs=2)
    else:

        def iterate(body: GraphBuilder, number: str, carried: list[str]) -> list[str]:
            del carried
            return list(layer(body, *(body.op("Gather", whole, number, axis=0) for whole in (past, decays))))

        present, outs = looped(build, build.constant(numpy.int64(LAYERS)), [], iterate, 2)
    build.present(present, "present", [LAYERS, *STATE])
    total = build.op("ReduceSum", outs, build.ints(0), keepdims=0)
    write_logits(build, build.op("Reshape", total, build.ints(0, 0, HEADS * SIZE)), HEADS * SIZE)
    return build.model()


def variable_in_a_body() -> OpenVINOModel:
    """The sum of all rows so far, a variable whose ReadValue and Assign are in the body of a TensorIterator."""
    tokens, token = opset13.parameter([-1, 4], numpy.float32), opset13.parameter([1, 4], numpy.float32)
    info = VariableInfo()
    info.data_shape, info.data_type, info.variable_id = openvino.PartialShape([1, 4]), openvino.Type.f32, "state"
    variable = Variable(info)
    read = opset6.read_value(opset13.constant(numpy.zeros((1, 4), numpy.float32)), variable)
    total = opset13.add(read, token)
    body = openvino.Model([opset13.result(total)], [opset6.assign(total, variable)], [token], "body")
    loop = opset13.tensor_iterator()
    loop.set_body(body)
    loop.set_sliced_input(token, tokens.output(0), 0, 1, 1, -1, 0)
    sums = loop.get_concatenated_slices(body.get_results()[0].output(0), 0, 1, 1, -1, 0)
    return OpenVINOModel(openvino.Model([opset13.result(sums)], [tokens], "main"))
