"""Build small ONNX graphs, operator by operator, and run a step of them."""

from __future__ import annotations

from typing import Any

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper

from graphpass.dialects.onnx.model import OnnxModel

BATCH, HEADS, SIZE, PAST, NEW, ROOM, HIDDEN, VOCABULARY = 2, 3, 8, 5, 1, 9, 12, 7

#: What the symbols of the graphs stand for in a real step.
SIZES = {"B": BATCH, "P": PAST, "N": NEW, "T": PAST + NEW, "C": ROOM}

_TYPES = {"f32": TensorProto.FLOAT, "i64": TensorProto.INT64, "i32": TensorProto.INT32, "i8": TensorProto.INT8}
_TYPES |= {"bool": TensorProto.BOOL, "f16": TensorProto.FLOAT16, "f64": TensorProto.DOUBLE}

Shape = list[Any]


class GraphBuilder:
    """An ONNX graph in the making; values are called by their names."""

    #: What the names of operators begin with.
    prefix = ""

    #: The prefix of the graph that holds the constants.
    holder = ""

    def __init__(self, opset: int = 21, contrib: bool = False, dtype: Any = numpy.float32) -> None:
        self._random = numpy.random.default_rng(3)
        self.dtype = dtype
        self._opset, self._contrib = opset, contrib
        self._nodes: list[onnx.NodeProto] = []
        self._inputs: list[onnx.ValueInfoProto] = []
        self._outputs: list[onnx.ValueInfoProto] = []
        self._tensors: list[onnx.TensorProto] = []

    def input(self, name: str, shape: Shape, kind: str = "f32") -> str:
        """An input of the model."""
        self._inputs.append(helper.make_tensor_value_info(name, _TYPES[kind], shape))
        return name

    def output(self, value: str, name: str, shape: Shape, kind: str = "f32") -> None:
        """An output of the model."""
        self._nodes.append(helper.make_node("Identity", [value], [name], f"out_{name}"))
        self._outputs.append(helper.make_tensor_value_info(name, _TYPES[kind], shape))

    def present(self, value: str, name: str, shape: Shape, kind: str = "f32") -> None:
        """An output without an operator of its own: ``value`` is renamed."""
        for node in self._nodes:
            node.output[:] = [name if made == value else made for made in node.output]
            node.input[:] = [name if read == value else read for read in node.input]
        self._outputs.append(helper.make_tensor_value_info(name, _TYPES[kind], shape))

    def pasts(self, shape: Shape, kind: str = "f32") -> tuple[str, str]:
        """Inputs ``past_key`` and ``past_value``."""
        return self.input("past_key", shape, kind), self.input("past_value", shape, kind)

    def presents(self, key: str, value: str, shape: Shape, kind: str = "f32") -> None:
        """Outputs ``present_key`` and ``present_value``; see `present`."""
        self.present(key, "present_key", shape, kind)
        self.present(value, "present_value", shape, kind)

    def weight(self, *shape: int) -> str:
        """Random numbers."""
        return self.constant(self._random.standard_normal(shape).astype(self.dtype))

    def number(self, value: float) -> str:
        """A number of the type of weights."""
        return self.constant(numpy.array(value, self.dtype))

    def ints(self, *values: int) -> str:
        """A vector of integers."""
        return self.constant(numpy.array(values, numpy.int64))

    def constant(self, value: Any) -> str:
        """A constant."""
        name = f"{self.holder}const_{len(self._tensors)}"
        self._tensors.append(numpy_helper.from_array(numpy.asarray(value), name))
        return name

    def op(self, kind: str, *inputs: str, outputs: int = 1, domain: str = "", name: str = "", **attributes: Any) -> Any:
        """An operator; its only output, which has the ``name`` of the operator if that is given, or all."""
        made = [name] if name else []
        name = name or f"{self.prefix}{kind}_{len(self._nodes)}"
        made += [f"{name}_{port}" for port in range(len(made), outputs)]
        self._nodes.append(helper.make_node(kind, list(inputs), made, name, domain=domain, **attributes))
        return made[0] if outputs == 1 else made

    def new(self, shape: Shape) -> str:
        """What the step's tokens give: ``hidden`` times weights, split into heads."""
        flat = self.op("MatMul", "hidden", self.weight(HIDDEN, HEADS * SIZE))
        return self.op("Reshape", flat, self.ints(*shape))

    def heads(self) -> str:
        """New keys, values or queries ``[batch, heads, new, size]``."""
        return self.op("Transpose", self.new([0, 0, HEADS, SIZE]), perm=[0, 2, 1, 3])

    def attend(self, key: str, value: str, mask: str = "", query: str = "") -> str:
        """Attention written out; ``key`` and ``value`` are ``[batch, heads, all, size]``."""
        scores = self.op("MatMul", query or self.heads(), self.op("Transpose", key, perm=[0, 1, 3, 2]))
        scores = self.op("Mul", scores, self.constant(numpy.float32(0.5)))
        if mask:
            scores = self.op("Add", scores, mask)
        return self.op("MatMul", self.op("Softmax", scores, axis=-1), value)

    def result(self, *values: str) -> None:
        """The logits, of what attention gave."""
        total = self.op("Add", *values) if len(values) == 2 else values[0]
        self.output(total, "logits", ["B", HEADS, "N", SIZE])

    def body(self, name: str) -> GraphBuilder:
        """The body of an operator of this graph, whose values it knows.

        Its constants are the model's; but a body in a body has its own, as OpenVINO's frontend finds no others there.
        """
        inside = GraphBuilder()
        inside.prefix, inside._random = f"{self.prefix}{name}_", self._random
        if self.prefix:
            inside.holder = inside.prefix
        else:
            inside._tensors = self._tensors
        return inside

    def gives(self, *values: str) -> None:
        """What the body gives, of shapes that are not said."""
        self._outputs += [helper.make_tensor_value_info(value, TensorProto.FLOAT, None) for value in values]

    def graph(self) -> onnx.GraphProto:
        """The body as what an operator takes as attribute."""
        own = self._tensors if self.holder == self.prefix else []
        return helper.make_graph(self._nodes, self.prefix, self._inputs, self._outputs, own)

    def model(self) -> OnnxModel:
        """The model, checked."""
        graph = helper.make_graph(self._nodes, "form", self._inputs, self._outputs, self._tensors)
        domains = [helper.make_opsetid("", self._opset)]
        domains += [helper.make_opsetid("com.microsoft", 1)] if self._contrib else []
        proto = helper.make_model(graph, opset_imports=domains, ir_version=10)
        if not self._contrib:
            onnx.checker.check_model(proto, full_check=True)
        return OnnxModel(proto)


def builder_with_hidden_states(tokens: str = "ids", **options: Any) -> GraphBuilder:
    """A graph with the step's hidden states as input; an Identity keeps them from being weighed right at the input."""
    build = GraphBuilder(**options)
    build.input(tokens, ["B", "N"], "i64")
    table = build.weight(VOCABULARY, HIDDEN)
    lookup = build.op("Gather", table, tokens, axis=0)
    build._nodes[-1].output[:] = ["hidden"]
    del lookup
    return build


def random_step(model: OnnxModel, **feeds: Any) -> dict[str, numpy.ndarray]:
    """One step in ONNX Runtime over random caches: all outputs by name."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    # Its optimizer makes a QuantizeLinear of another type than its zero point has.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.proto.SerializeToString(), options, ["CPUExecutionProvider"])
    random = numpy.random.default_rng(5)
    arrays = dict(feeds)
    kinds = {"tensor(float)": numpy.float32, "tensor(int8)": numpy.int8, "tensor(int32)": numpy.int32}
    kinds |= {"tensor(bool)": numpy.bool_}
    for port in session.get_inputs():
        shape = [SIZES.get(size, size) for size in port.shape]
        if port.name not in arrays:
            arrays[port.name] = random.integers(0, 3, shape).astype(kinds.get(port.type, numpy.int64))
    names = [port.name for port in session.get_outputs()]
    return dict(zip(names, session.run(names, arrays), strict=True)) | {
        f"in:{name}": value for name, value in arrays.items()
    }
