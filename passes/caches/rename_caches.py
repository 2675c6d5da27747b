"""The pass `rename-caches`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.analysis.caches.layers import roles_by_layer
from graphpass.dialects.onnx.model import OnnxModel
from graphpass.engine.conditions import HAS_CACHES
from graphpass.engine.passes import Done, Pass
from graphpass.errors import UnsupportedError
from graphpass.ir.cache import Cache
from graphpass.ir.inputs import BATCH_NAME


@dataclass(frozen=True)
class RenameCaches(Pass[OnnxModel]):
    """Rename past inputs and present outputs to the names that transformers.js and onnxruntime-genai expect.

    Both require names that contain the layer's number. transformers.js creates empty caches by name, maps outputs to
    inputs by ``present`` and ``past`` in their names, and finds the batch by the name of the dimension; other symbolic
    dimensions become 0 (`resolveCacheShape`). The new names depend on role and layer.

    Options:
        layers: Index of each layer with caches; by default, layers with caches are counted from 0.
        recurrent: Name of recurrent states.

    Shapes:
        any; the batch dimension is named ``batch_size`` everywhere, and sizes implied by attention are declared

    Before:
        past.0.conv [batch, 64, 2] -> present.0.conv, past_key_values_1_key [batch, 2, past, 16] -> present_1_key
    After:
        past_conv.0 [batch_size, 64, 2] -> present_conv.0, past_key_values.1.key [batch_size, 2, past, 16] ->
        present.1.key

    Raises:
        PreconditionError: GP302, the model has no caches.
        UnsupportedError: GP342, the role or the layer of a cache is unknown, or it has no present.
    """

    name = "rename-caches"
    dialect = "onnx"
    requires = (HAS_CACHES,)

    layers: tuple[int, ...] = ()
    recurrent: Literal["recurrent", "ssm"] = "recurrent"

    def run(self, model: OnnxModel) -> Done:
        inventory = analyze_caches(model)
        layers = roles_by_layer(inventory)
        caches = [cache for roles in layers for cache in roles.values()]
        if left := [cache.name for cache in inventory.caches if cache not in caches or cache.write is None]:
            raise _nameless(left[0])
        graph, rewriter = model.graph, model.rewriter()
        names = {}
        for index, roles in enumerate(layers):
            for role, cache in roles.items():
                read, write = self._names(cache.name, role, index)
                names[graph.reads[cache.read]], names[graph.writes[str(cache.write)]] = read, write
        renamed = sum(node.name != name for node, name in names.items())
        for symbol in dict.fromkeys(_batches(caches)):
            rewriter.rename_dimension(symbol, BATCH_NAME)
        for cache in caches:
            sizes = [size if isinstance(size, int) else None for size in cache.shape or ()]
            for node in (graph.reads[cache.read], graph.writes[str(cache.write)]):
                rewriter.resize_port(node, sizes)
                rewriter.name_dimension(node, cache.axes.batch, BATCH_NAME)
        rewriter.rename_ports(names)
        new = {cache.name: names[graph.reads[cache.read]] for cache in caches}
        model.declare(
            replace(declaration, name=new.get(declaration.name, declaration.name)) for declaration in model.declarations
        )
        rewriter.finish()
        return Done({"ports renamed": renamed})

    def _names(self, name: str, role: str, index: int) -> tuple[str, str]:
        """Return the names of past and present.

        Raises:
            UnsupportedError: GP342, the role, the layer or the present of the cache is unknown.
        """  # noqa: DOC501 - _nameless is an UnsupportedError
        if role not in {"key", "value", "conv", "recurrent"} or (self.layers and index >= len(self.layers)):
            raise _nameless(name)
        layer = self.layers[index] if self.layers else index
        if role in {"key", "value"}:
            return f"past_key_values.{layer}.{role}", f"present.{layer}.{role}"
        state = "conv" if role == "conv" else self.recurrent
        return f"past_{state}.{layer}", f"present_{state}.{layer}"


def _nameless(name: str) -> UnsupportedError:
    reason = f"cache {name} has no conventional name: its role, layer or present is unknown"
    return UnsupportedError("GP342", reason, f"declare it with --cache {name}=KIND,role=ROLE")


def _batches(caches: list[Cache]) -> Iterator[str]:
    """Yield the names of symbolic batch dimensions."""
    for cache in caches:
        size = cache.shape[cache.axes.batch] if cache.shape is not None and cache.axes.batch is not None else None
        if isinstance(size, str):
            yield size
