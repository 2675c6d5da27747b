"""Determine the caches of a model, with kind, role and axes, by dataflow."""

from __future__ import annotations

from dataclasses import replace

from graphpass.analysis.attention.operands import attention_operands
from graphpass.analysis.attention.reads import Read, attention_reads
from graphpass.analysis.caches.blocks import attention_blocks, beyond_reach, with_windows
from graphpass.analysis.caches.classify import CacheCase, Classification, classify, read_only
from graphpass.analysis.caches.declared import apply_declarations
from graphpass.analysis.caches.growth import growth_of
from graphpass.analysis.caches.pairs import Pair, find_pairs, history_of, is_stateful, may_be_past, unpaired_ports
from graphpass.analysis.symbolic.sizes import infer_sizes
from graphpass.ir.bodies import inlined
from graphpass.ir.cache import Cache, Inventory
from graphpass.ir.graph import Graph, Node
from graphpass.ir.model import Model
from graphpass.ir.operators import NO_DATA, PRODUCTS
from graphpass.progress import counting


def analyze_caches(model: Model) -> Inventory:
    """Return all caches of ``model``, and the attention that reads them.

    The evidence of a cache of kind ``unknown`` ends with the missing fact.

    Args:
        model: The model; caches are tensors of rank 2 to 5 in any element type.

    Returns:
        The caches by layer, the attention blocks in execution order, and ports without a partner.

    Raises:
        UsageError: GP217, no carried tensor has the name of a declared cache (`Model.declare`); GP219, the graph
            contradicts a declaration.
        ReadError: GP109, the metadata with the declarations is invalid.

    Examples:
        >>> import graphpass
        >>> inventory = graphpass.analyze_caches(graphpass.load("build/fixtures/llama/onnx"))
        >>> cache = inventory.cache("past_key_values.0.key")
        >>> cache.kind, cache.role, cache.axes.sequence, cache.bytes_per_token
        ('kv', 'key', 2, 128)
    """
    return model.analysis(_analyze)


def _analyze(model: Model) -> Inventory:
    whole = inlined(model)
    graph = whole.graph
    reads = whole.analysis(attention_reads)
    operands = {(value.node, value.port) for side in whole.analysis(attention_operands) for value, _ in side.places}
    pairs = whole.analysis(find_pairs)
    with counting("classifying caches", pairs, "caches") as each:
        kinds = {pair: _classify(whole, pair, reads.get(pair.read.index, ())) for pair in each}
    classified = list(apply_declarations(whole, model.declarations, kinds).values())
    paired = {pair.read.index for pair in pairs}
    for node in graph.of_op("Parameter"):
        if node.index not in paired and may_be_past(past := node.outputs[0]):
            entry = read_only(CacheCase(whole, Pair(past, None, node, None), reads.get(node.index, ())))
            classified += [entry] if entry is not None else []
    caches = _with_layers(classified, _regions(whole, kinds))
    linear = {cache.read for cache in caches if cache.kind == "linear"}
    readers = {entry.cache.read: entry.readers for entry in classified}
    blocks = attention_blocks(whole, caches, readers, pairs)
    inputs, outputs = unpaired_ports(graph, pairs, linear, operands)
    return Inventory(
        stateful=is_stateful(whole),
        caches=with_windows(caches, blocks),
        attention=beyond_reach(blocks, model) if whole is not model else blocks,
        unpaired_inputs=inputs,
        unpaired_outputs=outputs,
    )


def _classify(model: Model, pair: Pair, reads: tuple[Read, ...]) -> Classification:
    classification = _with_sizes(model, pair, classify(CacheCase(model, pair, reads)))
    state = history_of(model.graph, pair)
    if state is None:
        return classification
    evidence = (f"it stores earlier states of {state.attributes['variable']} only",)
    return replace(classification, cache=replace(classification.cache, kind="other", role="unknown", evidence=evidence))


def _with_sizes(model: Model, pair: Pair, classification: Classification) -> Classification:
    """Return a classification with sizes that the graph determines in place of free dimensions."""
    cache, sizes = classification.cache, model.analysis(infer_sizes).shape(pair.past)
    if cache.kind not in {"kv", "linear"} or cache.shape is None or sizes is None:
        return classification
    sequence, growth = cache.axes.sequence, growth_of(model, pair.past, pair.present)
    # A cache that is written in place has a fixed number of positions, whether declared or not.
    is_fixed = sequence is not None and sequence < len(growth) and growth[sequence] == "fixed"
    own = {cache.axes.batch} if is_fixed else {cache.axes.batch, sequence}
    shape = tuple(
        number if isinstance(number := size.as_number, int) and axis not in own else declared
        for axis, (declared, size) in enumerate(zip(cache.shape, sizes, strict=True))
    )
    return replace(classification, cache=replace(cache, shape=shape))


def _regions(model: Model, kinds: dict[Pair, Classification]) -> dict[str, int | None]:
    linear = {pair: entry.cache for pair, entry in kinds.items() if entry.cache.kind == "linear"}
    known = regions(model) if len(linear) > 1 else {}
    return {cache.name: known.get(pair.present.node) for pair, cache in linear.items() if pair.present is not None}


def _with_layers(classified: list[Classification], places: dict[str, int | None]) -> tuple[Cache, ...]:
    """Assign layers; caches of one attention share a layer, as do window and state.

    Updates of a layer are deeper in the graph than those of the previous layer. The residual stream separates a window
    from a recurrent state of another layer.

    Returns:
        The caches by layer, role and name; those without a layer are last.
    """
    order = {"key": 0, "value": 1, "indexer_key": 2, "conv": 0, "recurrent": 1, "cross_key": 2, "cross_value": 3}
    layer, layers = -1, []
    previous: Classification | None = None
    seen: set[tuple[str, str]] = set()
    for entry in sorted(classified, key=lambda entry: (entry.depth, order.get(entry.cache.role, 9), entry.cache.name)):
        if entry.cache.kind in {"other", "unknown"} or entry.spans_layers:
            layers.append(entry.cache)
            continue
        identity = (entry.cache.kind, entry.cache.role)
        joins = (
            previous is not None
            and _same_layer(previous, entry, repeats=identity in seen)
            and places.get(previous.cache.name) == places.get(entry.cache.name)
        )
        if not joins:
            layer += 1
            seen = set()
        seen.add(identity)
        layers.append(replace(entry.cache, layer=layer))
        previous = entry
    return tuple(
        sorted(layers, key=lambda cache: (cache.layer is None, cache.layer or 0, order.get(cache.role, 9), cache.name))
    )


def _same_layer(first: Classification, second: Classification, *, repeats: bool) -> bool:
    if first.reader is not None or second.reader is not None:
        if first.reader == second.reader:
            return True
        return not repeats and first.cache.kind == "kv" and second.cache.kind == "cross"
    return not repeats and first.cache.kind == second.cache.kind


def regions(model: Model) -> dict[int, int]:
    """Return the last node of the residual stream upstream of each node, by index."""
    graph = model.graph
    written = {pair.write.index for pair in model.analysis(find_pairs) if pair.write is not None}
    results = [node.index for node in graph.of_op("Result") if node.index not in written]
    region_of: dict[int, int] = {}
    best = (0, 0)
    for node in graph.of_op("Parameter"):
        if (node.outputs[0].rank or 0) not in {2, 3}:
            continue
        dominators = _dominators(graph, node)
        places = max((_chain(dominators, end) for end in results if end in dominators), key=len, default=[])
        # The tokens dominate the most products. Masks and positions enter after the first products, or bypass layers.
        merit = (sum(graph.nodes[index].op in PRODUCTS for index in dominators), len(places))
        if merit > best:
            best = merit
            region_of = _by_place(dominators, {place for place in places if _adds_up(graph.nodes[place], dominators)})
    return region_of


def _dominators(graph: Graph, start: Node) -> dict[int, int]:
    """Return the immediate dominators of the nodes that ``start`` reaches.

    Cooper, Harvey, Kennedy: A Simple, Fast Dominance Algorithm. One iteration in topological order is sufficient for a
    graph without cycles.
    """
    dominators, depths = {start.index: start.index}, {start.index: 0}
    for node in graph.nodes[start.index + 1 :]:
        before = {value.node for value in node.sources if value.node in dominators}
        if not before or node.op in NO_DATA:
            continue
        common, *others = before
        for other in others:
            while common != other:
                if depths[common] < depths[other]:
                    common, other = other, common
                common = dominators[common]
        dominators[node.index], depths[node.index] = common, depths[common] + 1
    return dominators


def _chain(dominators: dict[int, int], end: int) -> list[int]:
    places = [end]
    while dominators[places[-1]] != places[-1]:
        places.append(dominators[places[-1]])
    return places


def _adds_up(node: Node, dominators: dict[int, int]) -> bool:
    reached = [value for value in node.sources if value.node in dominators]
    return node.op in {"Add", "SkipLayerNormalization", "SkipSimplifiedLayerNormalization"} and len(reached) > 1


def _by_place(dominators: dict[int, int], places: set[int]) -> dict[int, int]:
    by_place: dict[int, int] = {}
    for node, before in dominators.items():
        by_place[node] = node if node in places or node == before else by_place[before]
    return by_place
