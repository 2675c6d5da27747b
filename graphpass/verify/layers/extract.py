"""Extract models of single parts, from tokens to the part's contribution."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy

from graphpass.analysis.caches.chain import is_sum
from graphpass.analysis.caches.packed import only_beam_gather
from graphpass.errors import UnsupportedError
from graphpass.ir.inputs import PAST_LENGTH
from graphpass.ir.values import REALS, fixed_size
from graphpass.verify.layers.head import LOGITS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from graphpass.ir.cache import Cache
    from graphpass.ir.graph import Graph, Node, Value
    from graphpass.ir.model import Model
    from graphpass.ir.rewriter import Rewriter
    from graphpass.ir.writer import Handle, Writer
    from graphpass.verify.parts import Part

#: Rows of the table of random vectors that replaces the graph upstream of a part; token ids are taken modulo this.
_ROWS = 251

#: Minimum and maximum standard deviation of the vectors: small enough for the contribution of a layer and the epsilon
#: of a norm to exceed rounding errors, large enough for norms.
_LEAST, _MOST = 0.02, 0.2

_TINY = 1e-20

#: Factors of the scale's logarithm; the output has cosine and sine of each product, since tolerances suit values up to
#: about 1. The second factor shows changes of the scale from 0.02 % on in f32, the first those above e**(pi / 5).
_TURNS = 1.0, 10.0


def extract(part: Part) -> Model:
    """Return a model of ``part`` alone.

    - The first value of the part is replaced by rows of a table of random vectors, selected by token ids; the table is
      the same for all models of this width. If the model accepts embeddings, they are used instead.
    - Values between other parts, of which only shapes are read, become the same vectors, and their caches zeros.
    - The output ``logits`` ``[batch, length, width + 4]`` is the part's contribution to the residual stream, scaled to
      a mean square of 1 at each position, and 4 values that encode the scale. The last part returns its logits.

    Raises:
        UnsupportedError: GP325, the model reads embeddings of another width than the part.
    """
    chain = part.chain
    needed = _needed(part)
    model, same = chain.model.excerpt(needed.values())
    graph = model.graph
    rewriter = model.rewriter()
    write = rewriter.under("graphpass/part")
    tokens = _twin(graph, same, chain.tokens)
    leaving = None if part.exit is None else _twin(graph, same, part.exit)
    start: Handle = None
    if part.entry is not None:
        start = _stream(write, tokens, part.entry)
        for cut in (cut for node, cut in part.outside.items() if node in needed):
            _replace_cut(rewriter, write, _twin(graph, same, cut), start)
    others = [cache for cache in chain.caches if cache.name not in part.caches]
    own = [cache for cache in chain.caches if cache.name in part.caches]
    fed: Handle = None
    for cache in others:
        if (node := chain.graph.reads[cache.read]).index in needed:
            read = _twin(graph, same, node.outputs[0])
            length = _length(write, graph, cache, own)
            if length is None and cache.axes.sequence is not None:
                fed = fed or graph.parameters.get(PAST_LENGTH) or rewriter.input(PAST_LENGTH, "i64", [1])
                length = fed
            zeros = _zeros(write, cache, read, tokens, length)
            rewriter.redirect_uses(read, zeros)
            if (gather := only_beam_gather(chain.graph, node)) is not None and gather.index in needed:
                # The zeros already have the batch size of the tokens, so that they need no gather.
                rewriter.redirect_uses(_twin(graph, same, gather.outputs[0]), zeros)
    reads = {cache.read for cache in others}
    writes = {cache.write for cache in chain.caches if cache.name in part.caches}
    known = chain.graph.parameters.keys() - reads
    gone = [node for node in graph.of_op("Parameter") if node.name not in known]
    gone += [node for node in graph.of_op("Result", "Assign") if node.name not in writes]
    if leaving is None:
        gone.remove(graph.nodes[same[chain.logits.index]])
    if leaving is not None:
        out = _contribution(write, leaving, start)
    rewriter.drop(gone)
    if leaving is not None:
        rewriter.output(LOGITS, out, "f32", [None, None, _width(leaving) + 2 * len(_TURNS)])
    rewriter.finish()
    model.declare(declaration for declaration in model.declarations if declaration.name in part.caches)
    return model


def _length(write: Writer, graph: Graph, cache: Cache, own: Sequence[Cache]) -> Handle:
    """Return the length of the own caches if ``cache`` has their shape; else ``None``."""
    if cache.axes.sequence is None or cache.shape is None or None in cache.shape:
        return None
    for twin in own:
        if (twin.shape, twin.axes) == (cache.shape, cache.axes):
            return write.size(graph.reads[twin.read].outputs[0], cache.axes.sequence)
    return None


def _needed(part: Part) -> dict[int, Node]:
    """Return the nodes of the extracted model of ``part``, by index."""
    chain, graph = part.chain, part.chain.graph
    nodes = {node.index: node for node in graph.backward(part.ends, lambda node: part.sources(node))}
    read = [graph.producer(value) for node in nodes.values() for value in node.sources]
    more = [node for node in read if node.op == "Constant"]
    more += [graph.reads[name] for name in part.reads]
    more += [
        graph.writes[cache.write] for cache in chain.caches if cache.name in part.caches and cache.write in graph.writes
    ]
    if part.exit is None:
        more.append(chain.logits)
    return nodes | {node.index: node for node in more}


def _replace_cut(rewriter: Rewriter, write: Writer, cut: Value, stream: Handle) -> None:
    graph = rewriter.graph
    if is_sum(graph, cut):
        maker = graph.producer(cut)
        rewriter.redirect(maker, 0, stream)
        rewriter.redirect(maker, 1, write.op("Multiply", stream, write.number(0.0, cut.element_type)))
    else:
        rewriter.redirect_uses(cut, stream)


def _zeros(write: Writer, cache: Cache, read: Value, tokens: Value, length: Handle) -> Handle:
    """Return zeros with the shape of a cache, of which only the shape is read."""
    sizes = []
    for axis, size in enumerate(read.shape or ()):
        if axis == cache.axes.batch:
            sizes.append(write.size(tokens, 0))
        elif axis == cache.axes.sequence and not isinstance(size, int):
            sizes.append(length)
        else:
            sizes.append(write.constant([size if isinstance(size, int) else 1]))
    return write.op("Broadcast", write.number(0.0, read.element_type), write.op("Concat", *sizes, axis=0))


def _width(value: Value) -> int:
    width = fixed_size(value, -1)
    assert width is not None
    return width


def _stream(write: Writer, tokens: Value, like: Value) -> Handle:
    """Return vectors ``[batch, length, width]`` of tokens, with type and width of ``like``.

    Raises:
        UnsupportedError: GP325, the tokens are embeddings of another width.
    """
    width = _width(like)
    if tokens.element_type in REALS:
        if fixed_size(tokens, -1) != width:
            size = f"{fixed_size(tokens, -1)} elements instead of {width}"
            raise UnsupportedError("GP325", f"embeddings of {size} cannot replace the input of a part")
        small = write.op("Multiply", tokens, write.number(_MOST, tokens.element_type))
        return write.op("Convert", small, to=like.element_type)
    generator = numpy.random.default_rng(width)
    sizes = numpy.exp(numpy.linspace(numpy.log(_LEAST), numpy.log(_MOST), _ROWS))[:, None]
    table = (generator.standard_normal((_ROWS, width)) * sizes).astype(numpy.float32)
    ids = write.convert(tokens, "i64")
    rows = write.number(_ROWS, "i64")
    row = write.op("Subtract", ids, write.op("Multiply", write.op("Divide", ids, rows), rows))
    picked = write.op("Gather", write.constant(table, "table"), row, axis=0)
    return write.op("Convert", picked, to=like.element_type)


def _contribution(write: Writer, leaving: Value, base: Handle) -> Handle:
    """Return ``leaving - base``, normalized, followed by 4 values that encode the scale."""
    change = write.op("Convert", leaving, to="f32")
    if base is not None:
        change = write.op("Subtract", change, write.op("Convert", base, to="f32"))
    total = write.op("ReduceSum", write.op("Multiply", change, change), axes=[-1], keep=True)
    mean = write.op("Divide", total, write.number(float(_width(leaving)), "f32"))
    scale = write.op("Sqrt", write.op("Add", mean, write.number(_TINY, "f32")))
    logarithm = write.op("Log", scale)
    angles = [write.op("Multiply", logarithm, write.number(turns, "f32")) for turns in _TURNS]
    points = [write.op(kind, angle) for angle in angles for kind in ("Cos", "Sin")]
    return write.op("Concat", write.op("Divide", change, scale), *points, axis=-1)


def _twin(graph: Graph, same: dict[int, int], value: Value) -> Value:
    return graph.nodes[same[value.node]].outputs[value.port]
