"""Lower LinearAttention."""

from __future__ import annotations

from graphpass.ir.writer import Handle
from graphpass.passes.lower.lowered_operator import LoweredOperator

_QUERY, _KEY, _VALUE, _PAST, _DECAY, _BETA = range(6)

#: Rules that decay the state, and delta rules, which subtract the state's value of the key.
_DECAYS, _CORRECTS = frozenset({"gated", "gated_delta"}), frozenset({"delta", "gated_delta"})


def lower_linear_attention(operator: LoweredOperator) -> None:
    """Lower LinearAttention, of ONNX or of com.microsoft, to a Scan over tokens.

    OpenVINO's frontend has no rule for the operator (2026.4.1). Supported are all four update rules, decay for a head
    or for each row of its state, and any numbers of heads.

    Shapes:
        query ``[batch, length, heads * key_dim]``, key and value ``[batch, length, kv_heads * dim]``, state ``[batch,
        kv_heads, key_dim, value_dim]``.

    Before:
        LinearAttention(query, key, value, past, decay, beta) -> output, present
    After:
        Scan over length: state = exp(decay) * state; state += key x (beta * (value - key @ state)); query @ state

    Raises:
        UnsupportedError: GP341, a window of states, operands of different types, or unknown sizes.
    """
    _Layer(operator).write_all()


class _Layer:
    def __init__(self, operator: LoweredOperator) -> None:
        self._operator, self._write = operator, operator.write
        if operator.attribute("state_window", 0):
            raise operator.refusal(f"it has state_window = {operator.attribute('state_window')}")
        rule = operator.attribute("update_rule", "gated_delta")
        if rule not in _DECAYS | _CORRECTS | {"linear"}:
            raise operator.refusal(f"its update_rule is {rule}")
        for port, rules in ((_DECAY, _DECAYS), (_BETA, _CORRECTS)):
            if rule in rules and operator.read(port) is None:
                raise operator.refusal(f"its update_rule is {rule}, and input {port} is omitted")
        self._decays, self._corrects = rule in _DECAYS, rule in _CORRECTS
        self._heads: int = operator.attribute("q_num_heads")
        self._kv_heads: int = operator.attribute("kv_num_heads")
        # The number of key heads may be less than that of the state; only the query has their size.
        self._key_dim = self._width(_QUERY) // self._heads
        self._key_heads = self._width(_KEY) // self._key_dim
        self._value_dim = self._width(_VALUE) // self._kv_heads
        self._type = self._element_type()

    def _width(self, port: int) -> int:
        last: object = self._operator.size(port, -1)
        if not isinstance(last, int):
            raise self._operator.refusal(f"the shape of its input {self._operator.read(port).name} is unknown")
        return last

    def _element_type(self) -> str:
        operands = [self._operator.value(port) for port in (_QUERY, _KEY, _VALUE, _PAST)]
        types = {value.element_type for value in operands if value is not None} - {"dynamic"}
        if len(types) != 1:
            raise self._operator.refusal(f"its operands are of types {', '.join(sorted(types)) or 'that are unknown'}")
        return types.pop()

    def write_all(self) -> None:
        operator, write = self._operator, self._write
        groups = max(self._heads // self._kv_heads, 1)
        scale = operator.factor(operator.attribute("scale", 0.0) or self._key_dim**-0.5, self._type)
        query = self._repeated(self._split(_QUERY, [self._heads, self._key_dim]), self._heads)
        # The scale is before the loop, as in exports: fuse-gated-delta-net matches it there.
        query = write.op("Multiply", query, scale)
        scanned = {"query": write.op("Reshape", query, [0, 0, self._kv_heads, groups, self._key_dim])}
        key = self._repeated(self._split(_KEY, [self._key_heads, self._key_dim]), self._key_heads)
        scanned["key"] = write.op("Reshape", key, [0, 0, self._kv_heads, self._key_dim, 1])
        scanned["value"] = self._split(_VALUE, [self._kv_heads, 1, self._value_dim])
        if self._decays:
            rows = 1 if operator.size(_DECAY, -1) in {None, self._kv_heads} else self._key_dim
            scanned["decay"] = write.op("Exp", self._split(_DECAY, [self._kv_heads, rows, 1]))
        if self._corrects:
            scanned["beta"] = self._split(_BETA, [1 if operator.size(_BETA, -1) == 1 else self._kv_heads, 1, 1])
        with operator.rewriter.body(f"{operator.name}/token", ["past", *scanned], self._type) as body:
            body.outputs = self._token(dict(zip(["past", *scanned], body.inputs, strict=True)))
        state, rows = write.outputs(
            "Scan",
            self._past(),
            *scanned.values(),
            count=2,
            body=body,
            num_scan_inputs=len(scanned),
            scan_input_axes=[1] * len(scanned),
            scan_output_axes=[1],
        )
        width = self._kv_heads * groups * self._value_dim
        operator.replace(0, write.op("Reshape", rows, [0, 0, width]))
        operator.replace(1, state)

    def _repeated(self, split: Handle, heads: int) -> Handle:
        """Return ``heads`` repeated up to the number of heads of the state."""
        if heads >= self._kv_heads:
            return split
        sources = [head * heads // self._kv_heads for head in range(self._kv_heads)]
        return self._write.op("Gather", split, sources, axis=2, label="repeated")

    def _split(self, port: int, shape: list[int]) -> Handle:
        return self._write.op("Reshape", self._operator.read(port), [0, 0, *shape])

    def _past(self) -> Handle:
        past, write = self._operator.read(_PAST), self._write
        if past is not None:
            return past
        sizes = [self._kv_heads, self._key_dim, self._value_dim]
        shape = write.op("Concat", write.size(self._operator.read(_QUERY), 0), sizes, axis=0)
        return write.op("Broadcast", write.number(0.0, self._type), shape)

    def _token(self, values: dict[str, Handle]) -> list[Handle]:
        """Return the new state and the result of a token."""
        write = self._write
        past, key, value = values["past"], values["key"], values["value"]
        if self._decays:
            past = write.op("Multiply", past, values["decay"])
        if self._corrects:
            recalled = write.op("MatMul", write.op("Transpose", key, order=[0, 1, 3, 2]), past)
            value = write.op("Multiply", write.op("Subtract", value, recalled), values["beta"])
        state = write.op("Add", past, write.op("Multiply", key, value))
        return [state, write.op("MatMul", values["query"], state)]
