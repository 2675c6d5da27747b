"""The pass `make-stateful`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.analysis.caches.pairs import find_pairs
from graphpass.analysis.caches.updates import find_updates
from graphpass.analysis.lengths.proven import find_lengths
from graphpass.analysis.symbolic.folding import fold_cuts, fold_scalar
from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.dialects.openvino.rewriter import OpenVINORewriter
from graphpass.dialects.openvino.variables import remember_names
from graphpass.engine.conditions import HAS_CACHES, STATEFUL, STATELESS
from graphpass.engine.passes import Done, Pass
from graphpass.errors import PreconditionError, UnsupportedError
from graphpass.ir.cache import Cache, Inventory
from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.writer import Handle
from graphpass.passes.caches.slots import conversions


@dataclass(frozen=True)
class MakeStateful(Pass[OpenVINOModel]):
    """Replace inputs and outputs of caches by variables, which stay on the device.

    Each pair of past input and present output becomes a variable. Its id is the concatenation of the past name and the
    present name, as in OpenVINO's MakeStateful; StatefulToStateless, NPUW and optimum parse it. The initial value is
    zeros, with the runtime's batch size and length 0 along the sequence axis: without an initializer the CPU plugin
    does not compile the model, and openvino.genai does not find the cache. Cross-attention caches, which are only read,
    are still inputs.

    Options:
        beam_index: Add the input ``beam_idx`` (i32 [batch]), and gather the rows of every cache by it. openvino.genai
            sets the input, and the CPU plugin's fusion requires the Gather.

    Shapes:
        kv ``[batch, heads, sequence, head_dim]`` in any order; linear ``[batch, ...]``.

    Before:
        past_key_values.0.key (Parameter) -> Concat(., new) -> present.0.key (Result)
    After:
        ReadValue(Broadcast(0, [batch, heads, 0, head_dim])) -> Gather(., beam_idx, 0) -> Concat(., new) -> Assign

    Raises:
        PreconditionError: GP302, no caches, or already stateful; GP314, a past without a present, or a present without
            a past; GP318, the model already has an input beam_idx.
        UnsupportedError: GP313, the names of two caches concatenate to the same id; GP315, a cache of unknown kind;
            GP316 an unknown dimension of an initial value; GP317, no input has a batch dimension; GP326, a cache of
            fixed capacity.
    """

    name = "make-stateful"
    dialect = "openvino"
    requires = (HAS_CACHES, STATELESS)
    ensures = (STATEFUL,)

    beam_index: bool = True

    def run(self, model: OpenVINOModel) -> Done:
        inventory = analyze_caches(model)
        _check(inventory)
        if self.beam_index and "beam_idx" in model.graph.parameters:
            raise PreconditionError(
                "GP318", "the model already has an input beam_idx", "use make-stateful{beam-index=false}"
            )
        carried = inventory.of_kind("kv", "linear", "other")
        _check_growth(model, inventory.of_kind("kv"))
        _check_ids(carried)
        rewriter = model.rewriter()
        initial = _InitialValues(model, rewriter, carried)
        beam_index = rewriter.input("beam_idx", "i32", [_batch_size(carried)]) if self.beam_index else None
        for cache in carried:
            past = model.graph.reads[cache.read]
            _read_batch_of_input(rewriter, cache, past.outputs[0], initial)
            _read_variable(rewriter, cache, past.outputs[0], initial, beam_index)
            write = model.graph.writes[cache.write]
            rewriter.add_assign(_id(cache), rewriter.native(write.source()), f"{cache.write}/write")
            rewriter.drop([past, write])
        remember_names(model, {_id(cache): (cache.read, str(cache.write)) for cache in carried})
        ids = {cache.name: _id(cache) for cache in carried}
        model.declare(
            replace(declaration, name=ids.get(declaration.name, declaration.name)) for declaration in model.declarations
        )
        rewriter.finish()
        return Done(
            {"variables": len(carried), "kv": len(inventory.of_kind("kv")), "linear": len(inventory.of_kind("linear"))}
        )


def _id(cache: Cache) -> str:
    return f"{cache.read}{cache.write}"


def _check(inventory: Inventory) -> None:
    lonely = [f"input {name} has no present" for name in inventory.unpaired_inputs]
    lonely += [f"output {name} has no past" for name in inventory.unpaired_outputs]
    if lonely:
        hint = "a decoder without past, which only fills the caches, cannot be made stateful; use the decoder with past"
        raise PreconditionError("GP314", f"inputs and outputs of caches do not pair up: {'; '.join(lonely[:6])}", hint)
    for cache in inventory.caches:
        if cache.kind == "unknown":
            raise UnsupportedError(
                "GP315",
                f"cache {cache.name} is of unknown kind: {'; '.join(cache.evidence)}",
                f"declare it, for example with --cache {cache.name}=kv,sequence={cache.axes.sequence or 0}",
            )


def _check_ids(carried: tuple[Cache, ...]) -> None:
    owners: dict[str, Cache] = {}
    for cache in carried:
        other = owners.setdefault(_id(cache), cache)
        if other is not cache:
            message = f"caches {other.name} and {cache.name} would become variables with the same id, {_id(cache)}"
            raise UnsupportedError("GP313", message, "rename one of the inputs or outputs")


def _check_growth(model: OpenVINOModel, caches: tuple[Cache, ...]) -> None:
    """Check that caches grow, so that they can start empty.

    Raises:
        UnsupportedError: GP326, one has a fixed number of positions.
    """
    pairs = {pair.past.name: pair for pair in find_pairs(model)}
    for cache in caches:
        axis, graph = cache.axes.sequence or 0, model.graph
        values = graph.reads[cache.read].outputs[0], graph.writes[cache.write].source()
        past, present = ((value.shape or ())[axis] for value in values)
        updates = find_updates(model.graph, pairs[cache.read]) if cache.read in pairs else ()
        in_place = bool(updates) and not any(update.appends for update in updates)
        if in_place or (isinstance(past, int) and past == present):
            size = f"{past} positions" if isinstance(past, int) else "the positions of its input"
            raise UnsupportedError(
                "GP326",
                f"cache {cache.name} always has {size}: written in place, or a window",
                "export the model with a cache that grows",
            )


def _read_variable(
    rewriter: OpenVINORewriter, cache: Cache, past: Value, initial: _InitialValues, beam_index: Handle | None
) -> None:
    """Redirect users of a past to a variable, gathered by ``beam_idx``."""
    shape = [-1 if size is None else size for size in initial.sizes(cache, past)]
    name = cache.read
    state = rewriter.add_variable(_id(cache), past.element_type, shape, initial.of(cache, past), f"{name}/read")
    # The CPU plugin fails on a Convert after the Gather.
    converts = conversions(rewriter.graph, past)
    if converts:
        state = rewriter.op("Convert", state, to=converts[0].outputs[0].element_type, name=f"{name}/converted")
    if beam_index is not None:
        state = rewriter.op("Gather", state, beam_index, axis=cache.axes.batch or 0, name=f"{name}/by_beam")
    for value in (past, *(node.outputs[0] for node in converts)):
        for use in rewriter.graph.uses(value):
            rewriter.redirect(use.node, use.port, state)


def _read_batch_of_input(rewriter: OpenVINORewriter, cache: Cache, past: Value, initial: _InitialValues) -> None:
    """Read the batch size from an input instead of the past, as torch.onnx does.

    Paged attention removes the variables, and supports no use of their shape except the past's length, in the form
    that ``prev_sequence_length_pattern.cpp`` of openvino matches.
    """
    graph = rewriter.graph
    shapes = [use.node.outputs[0] for use in graph.uses(past) if use.node.op == "ShapeOf"]
    for node in [use.node for shape in shapes for use in graph.uses(shape)]:
        if cache.axes.batch is None or _picked(graph, node, past.rank or 0) != cache.axes.batch:
            continue
        picked, batch = node.outputs[0], initial.batch
        if picked.rank == 0:
            batch = rewriter.op("Reshape", batch, [], zero_keeps=False, name=f"{node.name}/batch")
        if picked.element_type != rewriter.type_of(batch):
            batch = rewriter.op("Convert", batch, to=picked.element_type, name=f"{node.name}/typed")
        rewriter.redirect_uses(picked, batch)


def _picked(graph: Graph, node: Node, rank: int) -> int | None:
    """Return the axis of the single dimension that ``node`` selects from a shape of ``rank``."""
    if node.op == "Gather":
        index = fold_scalar(graph, node.inputs[1])
        return None if index is None else int(index) % rank
    cuts = fold_cuts(graph, node)
    if len(cuts) != 1 or cuts[0].start is None or cuts[0].stop is None or cuts[0].stop - cuts[0].start != 1:
        return None
    return cuts[0].start % rank


def _batch_size(carried: tuple[Cache, ...]) -> int:
    sizes = {
        cache.shape[cache.axes.batch] for cache in carried if cache.shape is not None and cache.axes.batch is not None
    }
    size = sizes.pop() if len(sizes) == 1 else None
    return size if isinstance(size, int) else -1


class _InitialValues:
    def __init__(self, model: OpenVINOModel, rewriter: OpenVINORewriter, carried: tuple[Cache, ...]) -> None:
        self._model = model
        self._rewriter = rewriter
        pasts = {cache.read for cache in carried}
        #: Inputs with a symbolic first dimension, the batch; it is fixed in position_ids [3, batch, length].
        self._sources = [
            model.graph.parameters[port.name]
            for port in model.inputs
            if port.name not in pasts and port.shape is not None and len(port.shape) > 1 and port.shape[0] is None
        ]

    @cached_property
    def batch(self) -> Handle:
        """Return the runtime's batch size, i64 [1], preferably from token ids or embeddings.

        Raises:
            UnsupportedError: GP317, no input besides the caches has a batch dimension.
        """
        known = self._rewriter.graph.parameters
        preferred = [known.get(name) for name in ("input_ids", "inputs_embeds", "decoder_input_ids")]
        if not self._sources:
            raise UnsupportedError("GP317", "no input besides the caches has a batch dimension")
        source = next((value for value in preferred if value in self._sources), self._sources[0])
        return self._rewriter.size(source, 0, "initial_state/batch")

    def sizes(self, cache: Cache, past: Value) -> list[int | None]:
        """Return fixed sizes of a cache, ``None`` for batch and length.

        onnxruntime-genai's builder declares no size for the channels of heads.
        """
        sizes = [size if isinstance(size, int) else None for size in past.shape or ()]
        for axis, size in enumerate(sizes):
            if size is None and axis not in (cache.axes.batch, cache.axes.sequence):
                shape = find_lengths(self._model).shape(past)
                known = None if shape is None else shape[axis].as_number
                sizes[axis] = known if isinstance(known, int) else None
        if cache.axes.sequence is not None:
            sizes[cache.axes.sequence] = None
        return sizes

    def of(self, cache: Cache, past: Value) -> Handle:
        write = self._rewriter.under(cache.read)
        parts: list[Handle] = []
        for axis, size in enumerate(self.sizes(cache, past)):
            known = 0 if axis == cache.axes.sequence else size
            if known is not None:
                parts.append(write.constant([known], f"initial_{axis}"))
            elif axis == cache.axes.batch:
                parts.append(self.batch)
            else:
                raise UnsupportedError(
                    "GP316",
                    f"dimension {axis} of cache {cache.name} is unknown, so its initial value cannot be written",
                    "give the input a fixed size along this axis",
                )
        shape = write.op("Concat", *parts, axis=0, label="initial_shape")
        return write.op("Broadcast", write.number(0.0, past.element_type, "zero"), shape, label="initial")
