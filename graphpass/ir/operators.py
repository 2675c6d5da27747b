"""Classes of operators by their meaning, and operators with internal states.

Matchers combine these classes. A matcher that lists operators itself states a fact about one runtime.
"""

from __future__ import annotations

from dataclasses import dataclass

from graphpass.ir.cache import BHSD, Axes, CacheKind, CacheRole
from graphpass.ir.graph import Node, Value

#: Keep each element in position, in the same or another type; see also `graphpass.ir.values.is_value_preserving`.
CASTS = frozenset({"Convert", "Identity"})

#: Round each element to few bits, or convert it back: activations of QDQ models.
QUANTIZERS = frozenset({"DequantizeLinear", "FakeQuantize", "QuantizeLinear"})

#: Change the shape and keep the order of all elements.
RESHAPES = frozenset({"Flatten", "Reshape", "Squeeze", "Unsqueeze"})

#: Keep the order of all elements; change their shape or type.
KEEPS_ORDER = CASTS | RESHAPES

#: Keep all elements of the first input; change their positions, shape or type.
MOVES = KEEPS_ORDER | {"Transpose"}

#: Repeat all elements of the first input.
COPIES = frozenset({"Broadcast", "Tile"})

#: Rearrange or repeat all elements of the first input, controlled by further inputs.
LAYOUT = MOVES | COPIES

SLICES = frozenset({"Slice", "StridedSlice"})
SPLITS = frozenset({"Split", "VariadicSplit"})
GATHERS = frozenset({"Gather", "GatherElements", "GatherND"})

#: Select elements of the first input, controlled by further inputs.
PICKS = SLICES | SPLITS | GATHERS

#: Write elements of the third input into a copy of the first one.
SCATTERS = frozenset({"ScatterElementsUpdate", "ScatterNDUpdate", "ScatterUpdate"})

#: Read the shape of their input, and none of its elements.
SHAPE_READERS = frozenset({"ShapeOf", "Size"})

#: Inputs of operators that determine the shape of the result.
SIZE_PORTS: dict[str, tuple[int, ...]] = {
    "Broadcast": (1,),
    "Pad": (1, 2),
    "Range": (0, 1, 2),
    "Reshape": (1,),
    "Slice": (1, 2, 3),
    "StridedSlice": (1, 2, 3),
    "Tile": (1,),
    "TopK": (1,),
    "VariadicSplit": (2,),
}

#: Read no elements of an activation.
NO_DATA = SHAPE_READERS | {"Constant"}

#: Read an input of the model or a variable.
SOURCES = frozenset({"Parameter", "ReadValue"})

#: Nodes that stand for ports of loops in an inlined graph; see `graphpass.ir.bodies`.
LOOP_ENTRIES = frozenset({"Carried", "Sliced"})
LOOP_EXITS = frozenset({"Final", "Stacked"})

#: Loops over tokens that OpenVINO replaces by one operator: (number of inputs, port of the state) and the function.
#: Source: fuse_ssm.cpp and fuse_gated_delta_net.cpp of openvino; optimum-intel writes such loops.
RECURRENCES = {(7, 5): "a selective SSM", (9, 7): "a gated delta net"}

#: Multiply by weights of few bits, with attributes ``N`` (outputs) and ``K`` (inputs).
COMPRESSED_PRODUCTS = frozenset({"MatMulBnb4", "MatMulNBits"})

#: Multiply matrices along the last two axes, which attributes may transpose.
MATRIX_PRODUCTS = frozenset({"FusedMatMul", "MatMul"})

#: Multiply by weights if one of the first two inputs is a weight.
PRODUCTS = frozenset({"Conv", "Convolution", "Gemm", "GroupConvolution"}) | MATRIX_PRODUCTS | COMPRESSED_PRODUCTS

REDUCTIONS = frozenset(
    {"ReduceL1", "ReduceL2", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare"}
)

#: Normalize the vector at each position separately.
NORMS = frozenset(
    {"MVN", "RMS", "RMSNormalization", "LayerNormalization", "SimplifiedLayerNormalization"}
    | {"SkipSimplifiedLayerNormalization", "SkipLayerNormalization"}
)

ARITHMETIC = frozenset({"Add", "Divide", "Multiply", "Subtract"})
EXTREMA = frozenset({"Maximum", "Minimum"})

#: Compute each element from the same element of the first input.
UNARY = frozenset(
    {"Abs", "Ceiling", "Clamp", "Clip", "Cos", "Dropout", "Elu", "Erf", "Exp", "FastGelu", "Floor", "Gelu", "HSwish"}
    | {"IsInf", "IsNaN", "Log", "Mish", "Negative", "QuickGelu", "Reciprocal", "Relu", "Round", "Sigmoid", "Sign"}
    | {"Sin", "SoftPlus", "Sqrt", "Swish", "Tanh"}
)

#: Compare two values: the operand that is smaller, and whether equality is allowed.
COMPARISONS = {"Less": (0, 0), "LessEqual": (0, 1), "Greater": (1, 0), "GreaterEqual": (1, 1)}

ANDS = frozenset({"BitwiseAnd", "LogicalAnd"})
ORS = frozenset({"BitwiseOr", "LogicalOr"})
NOTS = frozenset({"BitwiseNot", "LogicalNot"})
LOGICAL = ANDS | ORS | NOTS | {"BitwiseXor", "LogicalXor"}

#: Operators between products with weights: each position of the hidden states is computed separately.
POSITIONWISE = ARITHMETIC | EXTREMA | UNARY | CASTS | NORMS | {"Power", "Select"}

#: Compute each element, or the vector at each position, separately; operands may be broadcast.
ELEMENTWISE = POSITIONWISE | COMPARISONS.keys() | LOGICAL | {"Equal", "FloorMod", "Mod", "NotEqual"}

#: Key and value in one tensor: [2, batch, heads, sequence, head_dim].
_PACKED = Axes(batch=1, heads=2, sequence=3, head_dim=4)

_BATCH_FIRST, _BATCH_SECOND = Axes(batch=0), Axes(batch=1)


@dataclass(frozen=True, slots=True)
class InnerState:
    """A state that an operator reads and writes internally.

    Attributes:
        past: Index of the input with the state.
        present: Index of the output with the updated state.
        kind: Kind of the cache.
        role: Role of the cache; ``unknown`` if keys and values share one tensor.
        axes: Indices of the axes.
        update: Change of the state, as text for the evidence.
    """

    past: int
    present: int
    kind: CacheKind
    role: CacheRole
    axes: Axes
    update: str = "appended inside"


def _keys_and_values(key: int, value: int) -> tuple[InnerState, ...]:
    return InnerState(key, 1, "kv", "key", BHSD), InnerState(value, 2, "kv", "value", BHSD)


def _packed(past: int) -> tuple[InnerState, ...]:
    return (InnerState(past, 1, "kv", "unknown", _PACKED, "keys and values in one tensor, both appended inside"),)


def _paged(key: int, value: int) -> tuple[InnerState, ...]:
    axes, update = Axes(heads=2, head_dim=3), "appended to blocks, ordered by block_table, inside"
    return InnerState(key, 1, "unknown", "key", axes, update), InnerState(value, 2, "unknown", "value", axes, update)


def _recurrent(axes: Axes, *ports: tuple[int, int]) -> tuple[InnerState, ...]:
    update = "an ordinary recurrent network's state, replaced by"
    return tuple(InnerState(past, present, "other", "recurrent", axes, update) for past, present in ports)


#: Operators that compute attention with their own caches. An operator of com.microsoft that shares its name with an
#: operator of ONNX has the prefix of its domain.
_ATTENTION: dict[str, tuple[InnerState, ...]] = {
    "GroupQueryAttention": _keys_and_values(3, 4),
    "SparseAttention": _keys_and_values(3, 4),
    "MultiHeadAttention": _keys_and_values(6, 7),
    "DecoderMaskedMultiHeadAttention": _keys_and_values(5, 6),
    "Attention": _keys_and_values(4, 5),
    "com.microsoft.Attention": _packed(4),
    "DecoderMaskedSelfAttention": _packed(4),
    "QAttention": _packed(8),
    "PagedAttention": _paged(3, 4),
}

#: All operators with an internal state.
STATE_OPERATORS: dict[str, tuple[InnerState, ...]] = _ATTENTION | {
    "LinearAttention": (InnerState(3, 1, "linear", "recurrent", _BATCH_FIRST, "updated inside"),),
    "CausalConvWithState": (InnerState(3, 1, "linear", "conv", _BATCH_FIRST, "new columns are shifted in inside"),),
    "LSTM": _recurrent(_BATCH_SECOND, (5, 1), (6, 2)),
    "GRU": _recurrent(_BATCH_SECOND, (5, 1)),
    "RNN": _recurrent(_BATCH_SECOND, (5, 1)),
    "LSTMCell": _recurrent(_BATCH_FIRST, (1, 0), (2, 1)),
    "GRUCell": _recurrent(_BATCH_FIRST, (1, 0)),
    "RNNCell": _recurrent(_BATCH_FIRST, (1, 0)),
    "LSTMSequence": _recurrent(_BATCH_FIRST, (1, 1), (2, 2)),
    "GRUSequence": _recurrent(_BATCH_FIRST, (1, 1)),
    "RNNSequence": _recurrent(_BATCH_FIRST, (1, 1)),
}

#: Operators with internal keys and values: (past input, present output) of each cache.
INNER_CACHES: dict[str, tuple[tuple[int, int], ...]] = {
    op: tuple((state.past, state.present) for state in states) for op, states in _ATTENTION.items()
}


def inner_state(node: Node, past: Value | None = None, present: Value | None = None) -> InnerState | None:
    """Return the first state of an operator between two values; ``None`` without such a state.

    Args:
        node: Any operator.
        past: The input with the state; ``None`` accepts any.
        present: The output with the updated state; ``None`` accepts any.
    """
    for state in STATE_OPERATORS.get(node.op, ()):
        reads = state.past < len(node.inputs) and node.inputs[state.past] == past
        gives = state.present < len(node.outputs) and node.outputs[state.present] == present
        if (past is None or reads) and (present is None or gives):
            return state
    return None


#: The input of GroupQueryAttention with the number of new tokens per row. Without it, several new tokens after a past
#: are supported for batch size 1 only (``query_seqlens``, docs/ContribOperators.md of ONNX Runtime 1.32).
NEW_TOKENS = 16

#: Inputs of GroupQueryAttention with the norm weights for each head of query and key.
NORM_WEIGHTS = (14, 15)

#: The same inputs of PagedAttention.
PAGED_NORM_WEIGHTS = (12, 13)


def stores_window(node: Node) -> bool:
    """Return whether a GroupQueryAttention stores only the positions that its window shows."""
    return bool(node.attributes.get("sliding_window_cache"))


def normalizes_heads(node: Node) -> bool:
    """Return whether attention has weights of norms of query or key.

    Args:
        node: A GroupQueryAttention or PagedAttention.
    """
    ports = PAGED_NORM_WEIGHTS if node.op == "PagedAttention" else NORM_WEIGHTS
    return any(node.input(port) is not None for port in ports)


def quantized_bits(node: Node) -> int | None:
    """Return the bits of a value in the caches of ``node``; ``None`` if unquantized."""
    kinds = {node.attributes.get(name, b"NONE") for name in ("k_quant_type", "v_quant_type")}
    return None if kinds == {b"NONE"} else int(node.attributes.get("kv_cache_bit_width", 8))


#: Domains of ONNX whose operators are identified by name.
_DOMAINS = frozenset({"", "ai.onnx", "ai.onnx.ml", "com.microsoft"})


def is_foreign(node: Node) -> bool:
    """Return whether an operator is of an unknown domain, where names may differ in meaning."""
    return getattr(node.native, "domain", "") not in _DOMAINS
