"""The pass `standardize-layout`."""

from __future__ import annotations

from dataclasses import astuple, dataclass, replace

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.analysis.caches.packed import packed_caches, packed_layout
from graphpass.engine.passes import Done, Pass, Skipped
from graphpass.errors import UnsupportedError
from graphpass.ir.cache import Axes, Cache, Inventory
from graphpass.ir.inputs import NEW_SLOTS
from graphpass.ir.layout import KVLayout, layout_of
from graphpass.ir.model import Model
from graphpass.ir.operators import inner_state
from graphpass.passes.caches.relayout import Order, inverse, move_axes

#: With version 2026.4.1, 1.5 ms a step became 5.5 ms.
UNFUSED = "OpenVINO's CPU plugin fuses attention only with caches in layout BHSD: steps take about 3 times as long"


@dataclass(frozen=True)
class StandardizeLayout(Pass[Model]):
    """Convert all KV caches to one layout, with few Transposes.

    Inputs, outputs, variables and their initializers get the new order of axes and keep their names. Concat, the beam
    Gather and the expansion of grouped heads operate in the new order. A Transpose before attention is adapted, and
    removed if attention reads the new order. Attention and other users that read another order get a Transpose.
    Transposes of new positions are cheap, because a step has few new positions.

    A cache is unchanged, with a note, if it does not have the axes of the layout, for example no axis of heads, or if
    it packs key and value (run unpack first).

    Options:
        to: The layout: one letter per axis, for example BHSD or BSHD. With BHSD+value-transposed, values are BHDS.
            Packed caches stay packed; BSHD+packed converts only packed caches.

    Shapes:
        a cache of four axes in any order to one of the same four axes in the order of ``to``.

    Before:
        ReadValue [batch, sequence, heads, head_dim] -> Concat(axis 1) -> Transpose(0, 2, 1, 3) -> attention
    After:
        ReadValue [batch, heads, sequence, head_dim] -> Concat(axis 2) -> attention

    Raises:
        UsageError: GP213, ``to`` is not a layout.
        UnsupportedError: GP382, ``to`` has axes of a pool, which only runtimes create; GP384, inputs move slots of
            caches by their layout (run this pass before insert-reorder).
    """

    name = "standardize-layout"

    to: str = "BHSD"

    def run(self, model: Model) -> Done | Skipped:
        wanted = KVLayout.parse(self.to)
        if pools := [axis for axis in wanted.order if axis in {"layer", "block"}]:
            raise UnsupportedError(
                "GP382",
                f"layout {self.to} has axes of a pool: {', '.join(pools)}",
                "choose an order of batch, heads, sequence and head_dim, such as BSHD; only runtimes create pools",
            )
        inventory = analyze_caches(model)
        if not inventory.of_kind("kv"):
            return Skipped("no cache grows")
        orders, notes = _orders(model, inventory, wanted)
        if not orders:
            return Done({}, notes)
        # An input of rank 1 has indices of slots, which do not depend on the layout.
        slots = [port.name for port in model.inputs if port.name.startswith(NEW_SLOTS) and len(port.shape or ()) != 1]
        if slots:
            raise UnsupportedError(
                "GP384",
                f"input {slots[0]} depends on the layout of caches",
                "run standardize-layout before insert-reorder",
            )
        rewriter = model.rewriter()
        before = _transposes(model)
        move_axes(
            rewriter,
            {model.graph.reads[cache.read].index: order for cache, order in orders.items()},
            {model.graph.writes[cache.write].index: order for cache, order in orders.items()},
        )
        orders_back = {cache.name: inverse(order) for cache, order in orders.items()}
        model.declare(
            replace(declaration, axes=_moved(declaration.axes, orders_back[declaration.name]))
            if declaration.name in orders_back
            else declaration
            for declaration in model.declarations
        )
        rewriter.finish()
        statistics = {"caches moved": len(orders), "Transpose before": before, "Transpose after": _transposes(model)}
        if inventory.stateful and wanted.order != ("batch", "heads", "sequence", "content"):
            notes += (UNFUSED,)
        return Done(statistics, notes)


def _transposes(model: Model) -> int:
    return sum(1 for _ in model.graph.of_op("Transpose"))


def _orders(model: Model, inventory: Inventory, wanted: KVLayout) -> tuple[dict[Cache, Order], tuple[str, ...]]:
    """Return new orders of axes, and notes on unchanged caches."""
    graph, orders = model.graph, {}
    packed = set(packed_caches(inventory))
    notes: list[str] = []
    for cache in inventory.of_kind("kv"):
        try:
            layout = packed_layout(model, cache) if cache in packed else layout_of(cache)
            order = _order(cache, layout, wanted)
        except UnsupportedError as error:
            notes.append(f"cache {cache.name} stays unchanged: {error.message}")
            continue
        if order == tuple(range(len(order))):
            continue
        past = graph.reads[cache.read].outputs[0] if cache.read in graph.reads else None
        inner = [] if past is None else [use.node for use in graph.uses(past) if inner_state(use.node, past=past)]
        if past is None:
            notes.append(f"cache {cache.name} stays unchanged: it is in the body of a loop or branch")
        elif inner:
            notes.append(f"cache {cache.name} stays unchanged: {inner[0].called} requires its layout")
        else:
            orders[cache] = order
    return orders, tuple(notes)


def _order(cache: Cache, layout: KVLayout, wanted: KVLayout) -> Order:
    if wanted.value_transposed and cache.role not in {"key", "value"}:
        raise UnsupportedError("GP381", "its role, key or value, is unknown")
    if wanted.packing == "separate" and layout.packing == "content":
        # Packing does not change the order of axes.
        wanted = replace(wanted, packing=layout.packing)
    return wanted.transposition(layout, "value" if cache.role == "value" else "key")


def _moved(axes: Axes, orders_back: Order) -> Axes:
    return Axes(*(None if axis is None else orders_back[axis] for axis in astuple(axes)))
