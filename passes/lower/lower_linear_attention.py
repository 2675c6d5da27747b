"""The pass `lower-linear-attention`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import onnx
from onnx import helper

from graphpass.dialects.onnx.model import OnnxModel
from graphpass.dialects.onnx.rewrite import NodeWriter, attributes, input_at, node_name, rewrite_nodes
from graphpass.dialects.onnx.tensors import element_code
from graphpass.engine.passes import Changed, Pass, PassResult, Unchanged
from graphpass.errors import UnsupportedError
from graphpass.ir.types import Dialect

if TYPE_CHECKING:
    from graphpass.ir.graph import Node

__all__ = ["LowerLinearAttention"]

_QUERY, _KEY, _VALUE, _PAST, _DECAY, _BETA = range(6)

#: Which rules decay the state, and which correct it by what it holds for the key already.
_DECAYS, _CORRECTS = frozenset({"gated", "gated_delta"}), frozenset({"delta", "gated_delta"})


@dataclass(frozen=True)
class LowerLinearAttention(Pass[OnnxModel]):
    """Write LinearAttention, of ONNX or of com.microsoft, as a Scan over the tokens.

    OpenVINO's frontend has no rule for the operator (2026.4.1). All four update rules are kept, decay for a head or for
    each of its rows, and any numbers of heads.

    Shapes:
        query ``[batch, length, heads * key_dim]``, key and value ``[batch, length, kv_heads * dim]``, state ``[batch,
        kv_heads, key_dim, value_dim]``.

    Before:
        LinearAttention(query, key, value, past, decay, beta) -> output, present
    After:
        Scan over length: state = exp(decay) * state; state += key x (beta * (value - key @ state)); query @ state

    Raises:
        UnsupportedError: GP340 an opset before 13; GP341 a window of states, a state of another type than the rest, or
            sizes that are not known.
    """

    name: ClassVar[str] = "lower-linear-attention"
    dialect: ClassVar[Dialect | None] = "onnx"

    def run(self, model: OnnxModel) -> PassResult:
        """See `Pass.run`."""
        known = {node.outputs[0].name: node for node in model.graph.of_op("LinearAttention")}
        count = rewrite_nodes(
            model,
            lambda native: native.op_type == "LinearAttention",
            lambda native, writer: _Layer(known.get(native.output[0]), native, writer).write(),
        )
        return Changed(model, {"layers lowered": count}) if count else Unchanged()


class _Layer:
    """One LinearAttention and what stands for it."""

    def __init__(self, node: Node | None, native: onnx.NodeProto, writer: NodeWriter) -> None:
        self._native, self._writer = native, writer
        self._given: dict[str, Any] = attributes(native)
        if node is None:
            raise self._refusal("it is inside a body or a function")
        if self._given.get("state_window", 0):
            raise self._refusal(f"it has state_window = {self._given['state_window']}")
        self._rule: str = self._given.get("update_rule", "gated_delta")
        if self._rule not in {"linear", "gated", "delta", "gated_delta"}:
            raise self._refusal(f"its update_rule is {self._rule}")
        for port, rules in ((_DECAY, _DECAYS), (_BETA, _CORRECTS)):
            if self._rule in rules and not input_at(native, port):
                raise self._refusal(f"its update_rule is {self._rule}, and input {port} is left out")
        self._heads: int = self._given["q_num_heads"]
        self._kv_heads: int = self._given["kv_num_heads"]
        self._key_dim = self._size(node, _KEY)
        self._value_dim = self._size(node, _VALUE)
        self._type = self._element_type(node)
        decay = node.inputs[_DECAY] if input_at(native, _DECAY) else None
        self._decays_rows = bool(decay is not None and decay.shape and decay.shape[-1] != self._kv_heads)
        beta = node.inputs[_BETA] if input_at(native, _BETA) else None
        self._betas = 1 if beta is not None and beta.shape and beta.shape[-1] == 1 else self._kv_heads

    def _refusal(self, reason: str) -> UnsupportedError:
        native = self._native
        return UnsupportedError("GP341", f"{native.op_type} {node_name(native)} cannot be lowered: {reason}")

    def _size(self, node: Node, port: int) -> int:
        """How long a head of key or value is."""
        value = node.inputs[port]
        last = value.shape[-1] if value is not None and value.shape else None
        if not isinstance(last, int):
            raise self._refusal(f"the shape of its input {input_at(self._native, port)} is not known")
        return last // self._kv_heads

    def _element_type(self, node: Node) -> int:
        given = [node.inputs[port] for port in (_QUERY, _KEY, _VALUE, _PAST) if port < len(node.inputs)]
        types = {value.element_type for value in given if value is not None} - {"dynamic"}
        if len(types) != 1:
            raise self._refusal(f"its operands are of types {', '.join(sorted(types)) or 'that are not known'}")
        return element_code(types.pop())

    def write(self) -> None:
        """Write both outputs of the operator."""
        writer, native = self._writer, self._native
        groups = max(self._heads // self._kv_heads, 1)
        query = writer.op("Reshape", native.input[_QUERY], writer.integers([0, 0, self._heads, self._key_dim]))
        if self._kv_heads > self._heads:
            # Each query head for several heads of keys and values.
            copies = writer.op("Unsqueeze", query, writer.integers([3]))
            copies = writer.op("Expand", copies, writer.integers([1, 1, 1, self._kv_heads // self._heads, 1]))
            query = copies
        scanned = [writer.op("Reshape", query, writer.integers([0, 0, self._kv_heads, groups, self._key_dim]))]
        scanned.append(self._split(_KEY, [self._kv_heads, self._key_dim, 1]))
        scanned.append(self._split(_VALUE, [self._kv_heads, 1, self._value_dim]))
        if self._rule in _DECAYS:
            rows = self._key_dim if self._decays_rows else 1
            scanned.append(writer.op("Exp", self._split(_DECAY, [self._kv_heads, rows, 1])))
        if self._rule in _CORRECTS:
            scanned.append(self._split(_BETA, [self._betas, 1, 1]))
        outputs = [*native.output, ""]
        name = f"{node_name(native)}/Scan"
        present = outputs[1] or f"{name}/present"
        writer.nodes.append(
            helper.make_node(
                "Scan",
                [self._past(), *scanned],
                [present, f"{name}/rows"],
                name=name,
                body=self._body(name, len(scanned)),
                num_scan_inputs=len(scanned),
                scan_input_axes=[1] * len(scanned),
                scan_output_axes=[1],
            )
        )
        scale = self._given.get("scale", 0.0) or self._key_dim**-0.5
        scaled = writer.op("Mul", f"{name}/rows", writer.number(scale, self._type))
        width = self._kv_heads * groups * self._value_dim
        writer.op("Reshape", scaled, writer.integers([0, 0, width]), output=outputs[0])

    def _split(self, port: int, shape: list[int]) -> str:
        return self._writer.op("Reshape", self._native.input[port], self._writer.integers([0, 0, *shape]))

    def _past(self) -> str:
        given, writer = input_at(self._native, _PAST), self._writer
        if given:
            return given
        sizes = writer.integers([self._kv_heads, self._key_dim, self._value_dim])
        shape = writer.op("Concat", writer.size(self._native.input[_QUERY], 0), sizes, axis=0)
        return writer.op("Expand", writer.number(0.0, self._type), shape)

    def _body(self, name: str, count: int) -> onnx.GraphProto:
        """One token: from the state before and the token's rows to the state after and the token's result."""
        body = NodeWriter(f"{name}/token", self._writer.opset)
        names = [f"{name}/{part}" for part in ("past", "query", "key", "value", "decay", "beta")]
        past, query, key, value, *others = names
        used = [past, query, key, value]
        if self._rule in _DECAYS:
            used.append(others[0])
            past = body.op("Mul", past, others[0])
        if self._rule in _CORRECTS:
            used.append(others[1])
            row = body.op("Transpose", key, perm=[0, 1, 3, 2])
            value = body.op("Mul", body.op("Sub", value, body.op("MatMul", row, past)), others[1])
        state = body.op("Add", past, body.op("Mul", key, value))
        result = body.op("MatMul", query, state)
        assert len(used) == count + 1
        infos = [helper.make_tensor_value_info(part, self._type, None) for part in used]
        results = [helper.make_tensor_value_info(part, self._type, None) for part in (state, result)]
        return helper.make_graph(body.nodes, f"{name}/body", infos, results)
