"""Rules of the NPU plugin with ``NPUW_LLM``: names, a Gather, one layout, masked padding.

NPUW converts variables back to inputs and outputs, and makes all shapes static. It feeds the prompt right-aligned in
a window of fixed size, so computations that ignore the attention mask read padding.

Measured on 2026.4.1; the findings name the source files in OpenVINO:

| model | result |
| --- | --- |
| other names, or additional inputs | refused |
| a Slice or Convert between Gather and Concat | refused |
| another order of axes | refused |
| bloom, without ``position_ids`` | fails at the first step |
| lfm2, without ``position_ids`` | wrong outputs |
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from graphpass.analysis.caches.logits_cut import crosses_logits_cut
from graphpass.analysis.caches.masks import find_masks
from graphpass.analysis.caches.past import beam_gather
from graphpass.analysis.caches.step_tokens import absorbs_padding
from graphpass.analysis.equations.activations import position_counters
from graphpass.analysis.lengths.past_order import order_of_numbers
from graphpass.analysis.pattern import Match, op, var
from graphpass.dialects.openvino.variables import named_kind
from graphpass.engine.findings import Finding
from graphpass.engine.view import names_of
from graphpass.ir.cache import BHSD, Cache, Inventory
from graphpass.ir.graph import Graph, Node
from graphpass.ir.inputs import EMBEDDINGS, TOKEN_INPUTS, VISUAL_FEATURES, VISUAL_MASK
from graphpass.ir.miss import Miss, MissError
from graphpass.ir.model import Model
from graphpass.ir.operators import SIZE_PORTS, SLICES
from graphpass.ir.phase import Phase
from graphpass.ir.values import fixed_size
from graphpass.targets.constant_windows import constant_window
from graphpass.targets.npu.names import EDITING_INPUTS, GO_BACK, KNOWN_INPUTS, START_AGAIN
from graphpass.targets.npu.values import is_transposed, misreads, reordered
from graphpass.targets.npu.visual import adds_scattered, visual_places
from graphpass.targets.npu.weights import not_widened
from graphpass.targets.npu.windows import unpatched_window
from graphpass.targets.rules import dropped_quantizers, static_findings

_NPUW = "src/plugins/intel_npu/src/plugin/npuw"
_COMPILED = f"{_NPUW}/llm_compiled_model.cpp"
_RESHAPE = f"{_NPUW}/npuw_transformations/reshape_to_static.cpp"
_LOGITS = f"{_NPUW}/npuw_transformations/cut_lm_head.cpp"
_EMPTY = f"{_NPUW}/embedding/remove_empty_kv_inputs.cpp"
_POSITIONS = f"{_NPUW}/npuw_transformations/add_position_ids_param.cpp"
_REQUEST = f"{_NPUW}/llm_infer_request.cpp"
_VALUES = f"{_NPUW}/npuw_transformations/optimize_value_tensors.cpp"
_MASKS = f"{_NPUW}/npuw_transformations/phi3_sliding_mask.cpp"
_WEIGHTS = f"{_NPUW}/util_xarch.cpp"
_VISUAL = f"{_NPUW}/npuw_transformations/replace_deepstack_scatter_with_add.cpp"
_STATELESS = "src/core/src/pass/stateful_to_stateless.cpp"

#: Element types of inputs other than i64.
_TYPES = {"beam_idx": "i32", VISUAL_MASK: "boolean", VISUAL_FEATURES: "f32"}

_COUNTED = op.Range(...)
_ROW = op.Unsqueeze(op.Unsqueeze(_COUNTED | op.Add(_COUNTED, ...), ...), ...)
_TRANSPOSED = op.Transpose(op.MatMul(var("frequencies"), _ROW | op.Convert(_ROW)), ...)

#: Angles whose Range NPUW replaces by ``position_ids`` (add_position_ids_param.cpp), also with an Add (2026.4.1).
_ANGLES = op.Cos(op.Concat(_TRANSPOSED, _TRANSPOSED))


def predict(model: Model, inventory: Inventory) -> tuple[Finding, ...]:
    """Predict how the NPU plugin executes a model.

    Args:
        model: A model in OpenVINO IR. The plugin runs it with ``NPUW_LLM``, unless its shapes are static.
        inventory: The caches of the model; unused for prefill and decode models of a pair.

    Returns:
        Findings on the model as a whole, on inputs and outputs, on caches, and on attention.
    """
    phase = Phase.find(model)
    if phase is not None:
        return static_findings(model, phase)
    ports = (*_inputs(model, inventory), *_outputs(model))
    caches = _caches(model, inventory)
    whole = (*_whole(model, inventory), *dropped_quantizers(model))
    return (*whole, *ports, *caches, *_attention(model), *_positions(model, inventory))


def _whole(model: Model, inventory: Inventory) -> Iterator[Finding]:
    if not inventory.stateful:
        yield Finding.of_model(model, "refused", "it has no variables: run make-stateful", _STATELESS)
    if inventory.caches and not inventory.of_kind("kv"):
        reason = "it has no keys and values: NPUW asserts that it removed some from the prefill model"
        yield Finding.of_model(model, "refused", reason, _EMPTY)
    if inventory.of_kind("cross"):
        reason = "it reads states of an encoder, which NPUW_LLM does not feed"
        yield Finding.of_model(model, "refused", reason, _REQUEST)
    node = data_dependent(model.graph)
    if node is not None:
        reason = f"the size of the result of {node.op} depends on computed values, so its shape cannot be static"
        yield Finding.of_model(model, "refused", reason, _RESHAPE, node)
    if any(_multiplies_by_experts(model.graph, node) for node in model.graph.of_op("MatMul")):
        for node in islice(model.graph.of_op("MVN"), 1):
            reason = "NPUW splits off batched experts, and loses operands of MVN: run lower-mvn"
            yield Finding.of_model(model, "refused", reason, _COMPILED, node)
    for miss in islice(not_widened(model.graph), 1):
        yield Finding.of_model(model, "refused", miss.reason, _WEIGHTS, miss.node)
    for node in unpatched_window(model.graph):
        reason = (
            "it is a sliding window over slots of the cache, which NPUW corrects only in the form And(And(., Greater), "
            "LessEqual) of BitwiseAnds"
        )
        yield Finding.of_model(model, "wrong", reason, _MASKS, node)


def _multiplies_by_experts(graph: Graph, node: Node) -> bool:
    """Return whether a product's second operand has a constant matrix for each of several experts."""
    weights, count = node.source(1), fixed_size(node.source(1), 0)
    if weights.rank != 3 or count in {None, 1} or fixed_size(node.source(), 0) != count:
        return False
    return all(
        made.op not in {"Parameter", "ReadValue"} for made in graph.backward([weights], lambda node: node.inputs)
    )


def data_dependent(graph: Graph) -> Node | None:
    """Return the first operator whose output shape depends on data; ``None`` without one.

    Places of visual features do not count, as NPUW replaces their scattering.
    """
    computed: set[int] = set()
    places = visual_places(graph)
    for node in graph.nodes:
        if node.op in {"Constant", "ShapeOf"} or node.index in places:
            continue
        if node.op in {"Parameter", "ReadValue"}:
            computed.add(node.index)
            continue
        if any(value.node in computed for value in node.sources):
            computed.add(node.index)
            sizes = [node.inputs[port] for port in SIZE_PORTS.get(node.op, ()) if port < len(node.inputs)]
            if node.op == "NonZero" or any(value is not None and value.node in computed for value in sizes):
                return node
    return None


def _inputs(model: Model, inventory: Inventory) -> Iterator[Finding]:
    ports = names_of(model, model.inputs)
    inputs = {name for _, names in ports for name in names}
    if "beam_idx" not in inputs:
        yield Finding("input", "beam_idx", "refused", reason="the model has no such input", source=_STATELESS)
    kinds = {cache.kind for cache in inventory.caches}
    # Decoders of speech have no padding.
    if "attention_mask" not in inputs and "cross" not in kinds:
        reason = "the model has no such input, by which the plugin excludes padding"
        reason += ": run add-attention-mask" if kinds == {"kv"} else ""
        yield Finding("input", "attention_mask", "refused", reason=reason, source=_REQUEST)
    if "position_ids" not in inputs:
        tried = [_ANGLES.match(model.graph, node) for node in model.graph.of_op("Cos")]
        if any(isinstance(match, Match) for match in tried):
            reason = "the model has no such input; NPUW adds it where Sin and Cos read positions from a Range"
            yield Finding("input", "position_ids", "taken", reason=reason, source=_POSITIONS)
        else:
            reason = "the model has no such input, and the plugin feeds it"
            missed = next((match.node.name for match in tried if isinstance(match, Miss)), None)
            source = _REQUEST if missed is None else _POSITIONS
            yield Finding("input", "position_ids", "refused", node=missed, reason=reason, source=source)
    for port, names in ports:
        shape = port.shape or ()
        if names.intersection(TOKEN_INPUTS) and len(shape) > 1 and isinstance(shape[1], int):
            reason = f"its length is fixed to {shape[1]} positions, and NPUW requires another length for prompts"
            yield Finding("input", port.name, "refused", reason=reason, source=_RESHAPE)
        fed = next((kind for name, kind in _TYPES.items() if name in names), "i64")
        if not names & KNOWN_INPUTS:
            reason = "NPUW treats inputs of other names as caches, and reshapes them like caches"
            if names & EDITING_INPUTS:
                reason += f": use the model without it; {_instead(inventory)}"
            yield Finding("input", port.name, "refused", reason=reason, source=_RESHAPE)
        elif port.element_type != fed and EMBEDDINGS not in names:
            reason = f"it is {port.element_type}, not {fed}"
            yield Finding("input", port.name, "refused", reason=reason, source=_REQUEST)
        elif VISUAL_FEATURES in names and not adds_scattered(model.graph):
            reason = "layers add it other than by ScatterNDUpdate into hidden states: run scatter-visual-features"
            yield Finding("input", port.name, "wrong", reason=reason, source=_VISUAL)


def _positions(model: Model, inventory: Inventory) -> Iterator[Finding]:
    """Yield a finding if activations read other positions than those that the plugin feeds."""
    if any("position_ids" in names for _, names in names_of(model, model.inputs)):
        for node in islice(position_counters(model, inventory), 1):
            reason = "it counts positions by lengths of the step, which are fixed here, instead of position_ids"
            yield Finding("input", "position_ids", "wrong", node=node.name, reason=reason, source=_POSITIONS)


def _outputs(model: Model) -> Iterator[Finding]:
    names = frozenset[str]().union(*(names for _, names in names_of(model, model.outputs)))
    if "logits" not in names:
        reason = "it has no output logits, which NPUW reads: export it with the product that computes them"
        yield Finding.of_model(model, "refused", reason, _REQUEST)
        return
    for node in crosses_logits_cut(model.graph):
        if node.op == "Result":
            reason = f"NPUW splits off the product of the logits at output {node.name}: run reshape-results"
            yield Finding.of_model(model, "refused", reason, _LOGITS, node)


def _caches(model: Model, inventory: Inventory) -> Iterator[Finding]:
    reads = {node.attributes["variable"]: node for node in model.graph.of_op("ReadValue")}
    cut = {node.attributes["variable"]: node for node in crosses_logits_cut(model.graph) if node.op == "Assign"}
    for cache in inventory.caches:
        if cache.name not in reads:
            reason = "it is an input of the model, not a variable: run make-stateful"
            yield Finding("cache", cache.name, "refused", cache.layer, reason=reason, source=_STATELESS)
            continue
        try:
            _require_known(cache, reads[cache.name])
            _require_whole(cut.get(cache.name))
            if cache.kind == "kv":
                _require_form(model.graph, cache, reads[cache.name], _instead(inventory))
        except _RefusalError as error:
            yield Finding.at(error.miss, "cache", cache.name, "refused", error.source, cache.layer)
        else:
            yield Finding("cache", cache.name, "taken", cache.layer)
    for cache in inventory.of_kind("linear"):
        if absorbs_padding(model, cache):
            reason = (
                "attention_mask is not applied to the state's inputs, so the state absorbs the padding before a prompt"
            )
            yield Finding("cache", cache.name, "wrong", cache.layer, cache.write, reason, _REQUEST)


class _RefusalError(MissError):
    """A miss on which NPUW refuses the model, with the source file of the rule."""

    def __init__(self, node: Node, reason: str, source: str) -> None:
        super().__init__(node, reason)
        self.source = source


def _require_known(cache: Cache, read: Node) -> None:
    if cache.kind not in {"kv", "linear"}:
        raise _RefusalError(read, f"it is of kind {cache.kind}, which NPUW does not support", _RESHAPE)
    kind = named_kind(cache.name)
    if kind == "nothing":
        names = "past_key_values.N.keypresent.N.key or cache_params.past.conv.Ncache_params.present.conv.N"
        raise _RefusalError(read, f"its name is not like {names}", _STATELESS)
    if kind != cache.kind:
        raise _RefusalError(read, f"its name is that of a {kind} cache", _STATELESS)


def _require_whole(cut: Node | None) -> None:
    if cut is not None:
        reason = "NPUW mistakes the product before it for that of the logits: run reshape-results"
        raise _RefusalError(cut, reason, _LOGITS)


def _require_form(graph: Graph, cache: Cache, read: Node, instead: str) -> None:
    if cache.axes != BHSD:
        raise _RefusalError(read, "it is not laid out as [batch, heads, sequence, head_dim]", _EMPTY)
    gather = beam_gather(graph, read.outputs[0])
    if gather is None:
        first = next((use.node for use in graph.uses(read.outputs[0]) if use.node.op != "ShapeOf"), read)
        raise _RefusalError(first, "no Gather by beam_idx reads the variable directly", _STATELESS)
    for use in graph.uses(read.outputs[0]):
        if use.node != gather:
            reason = "it reads the variable before the Gather by beam_idx, which NPUW replaces by an input"
            raise _RefusalError(use.node, f"{reason}: run read-length-from-keys", _STATELESS)
    for use in graph.uses(gather.outputs[0]):
        if use.node.op not in {"Concat", "ShapeOf"}:
            reason = f"{use.node.op} is between the Gather and the Concat of past and new positions"
            if use.node.op in SLICES:
                reason += f": use the model without it; {instead}"
            raise _RefusalError(use.node, reason, _EMPTY)
    if cache.role == "value" and is_transposed(graph, read):
        for node in reordered(graph, read):
            reason = "NPUW replaces its order by [0, 2, 3, 1], which is wrong unless it is [0, 2, 1, 3]"
            raise _RefusalError(node, f"{reason}: run split-value-transposes", _VALUES)
        for use in misreads(graph, read):
            reason = "it reads the length of the past from values, which NPUW transposes"
            raise _RefusalError(use.node, f"{reason}: run read-length-from-keys", _VALUES)


def _instead(inventory: Inventory) -> str:
    return START_AGAIN if inventory.of_kind("linear") else GO_BACK


def _attention(model: Model) -> Iterator[Finding]:
    """Yield findings on attention whose mask is wrong with padding, or with the plugin's positions."""
    graph = model.graph
    for node in graph.of_op("ScaledDotProductAttention"):
        mask = node.input(3)
        window = constant_window(graph, mask)
        if window is not None:
            reason = "its constant window is over slots of the cache, which have other positions in NPUW"
            yield Finding("attention", node.name, "wrong", node=window.name, reason=reason, source=_MASKS)
        if mask is not None and mask.element_type == "boolean":
            reason = "its mask is boolean, so completely masked rows of padding are NaN, which spreads to other rows"
            yield Finding("attention", node.name, "wrong", node=node.name, reason=reason, source=_COMPILED)
    for meaning in model.analysis(find_masks):
        name = meaning.node.name
        if meaning.chunk is not None and not meaning.reads_positions:
            reason = f"its mask limits attention to chunks of {meaning.chunk} slots, which have other positions in NPUW"
            reason += ": run chunks-from-positions"
            yield Finding("attention", name, "wrong", node=name, reason=reason, source=_REQUEST)
        if order_of_numbers(meaning, meaning.bias) == "index":
            reason = "its bias depends on slots of the cache, which have other positions in NPUW"
            yield Finding("attention", name, "wrong", node=name, reason=reason, source=_REQUEST)
