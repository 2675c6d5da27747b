"""Comparison of two models."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable
from typing import Any

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.dialects.weights import weights_of
from graphpass.ir.cache import Cache
from graphpass.ir.model import Model
from graphpass.ir.types import Port, shape_text
from graphpass.progress import stage
from graphpass.reports.diff.changes import Change, Facets, ModelDifference, changes_between
from graphpass.reports.diff.operators import compare_operators, operators_of
from graphpass.reports.diff.weights import compare_weights
from graphpass.reports.text import axes_in_words


def diff_models(before: Model, after: Model) -> ModelDifference:
    """Return the differences between two models.

    Different dialects are a difference. Models of different dialects are compared by types and names of operators,
    inputs, outputs, caches and weights, but not by attributes, inputs of operators, and metadata.

    Args:
        before: The first model.
        after: The second model. Weights of both are read only if file, name and size do not prove them equal.

    Raises:
        ReadError: GP105, a weight file is missing; GP110, a weight file changed since the model was read.
    """
    same_dialect = before.dialect == after.dialect
    with stage("comparing operators"):
        kinds = [Counter(facets["kind"] for facets in _kinds(model).values()) for model in (before, after)]
        operators = compare_operators(before, after) if same_dialect else changes_between(_kinds(before), _kinds(after))
    ports = [
        changes_between(_ports(old, symbols=same_dialect), _ports(new, symbols=same_dialect))
        for old, new in ((before.inputs, after.inputs), (before.outputs, after.outputs))
    ]
    with stage("comparing caches"):
        inventories = [analyze_caches(model) for model in (before, after)]
    with stage("comparing weights"):
        weights = compare_weights(weights_of(before), weights_of(after))
    difference = ModelDifference(
        dialects=(before.dialect, after.dialect),
        kinds=tuple(
            (kind, kinds[0][kind], kinds[1][kind])
            for kind in sorted(kinds[0] | kinds[1])
            if kinds[0][kind] != kinds[1][kind]
        ),
        operators=operators,
        inputs=ports[0],
        outputs=ports[1],
        caches=_caches(*(inventory.caches for inventory in inventories), symbols=same_dialect),
        metadata=changes_between(_metadata(before), _metadata(after)) if same_dialect else (),
        weights=weights,
        other=False,
    )
    if not difference.same or before.digest() == after.digest():
        return difference
    return dataclasses.replace(difference, other=True)


def _kinds(model: Model) -> dict[str, Facets]:
    return {name: {"kind": node.op} for name, node in operators_of(model).items() if node.op != "Result"}


def _ports(ports: Iterable[Port], *, symbols: bool) -> dict[str, Facets]:
    return {port.name: {"type": port.element_type, "shape": shape_text(port.shape, symbols=symbols)} for port in ports}


def _caches(before: Iterable[Cache], after: Iterable[Cache], *, symbols: bool) -> tuple[Change, ...]:
    news = {cache.name: cache for cache in after}
    olds = {cache.name: cache for cache in before}
    by_role = {(cache.layer, cache.role): cache for cache in news.values() if cache.name not in olds}
    changes: list[Change] = []
    for old in olds.values():
        new = news.get(old.name) or (by_role.get((old.layer, old.role)) if old.layer is not None else None)
        kept = {} if new is None else {old.name: _cache(news.pop(new.name), symbols=symbols)}
        by_role.pop((old.layer, old.role), None)
        changes += changes_between({old.name: _cache(old, symbols=symbols)}, kept)
    changes += changes_between({}, {name: _cache(cache, symbols=symbols) for name, cache in news.items()})
    return tuple(changes)


def _cache(cache: Cache, *, symbols: bool) -> Facets:
    axes = axes_in_words(cache.axes)
    return {
        "name": cache.name,
        "kind": cache.kind,
        "role": cache.role,
        "layer": "unknown" if cache.layer is None else str(cache.layer),
        "type": cache.element_type,
        "shape": shape_text(cache.shape, symbols=symbols),
        "axes": axes,
        "past": cache.read,
        "present": cache.write or "never written",
    }


def _metadata(model: Model) -> dict[str, Facets]:
    if model.dialect == "openvino":
        from graphpass.dialects.openvino.model import OpenVINOModel

        assert isinstance(model, OpenVINOModel)
        return {key: {"value": value} for key, value in _flat(model.ov_model.rt_info)}
    from graphpass.dialects.onnx.model import OnnxModel

    assert isinstance(model, OnnxModel)
    proto = model.proto
    fields = ("ir_version", "producer_name", "producer_version", "domain", "model_version", "doc_string")
    metadata = {name: {"value": str(getattr(proto, name))} for name in fields if proto.HasField(name)}
    metadata |= {f"opset {entry.domain or 'ai.onnx'}": {"value": str(entry.version)} for entry in proto.opset_import}
    return metadata | {f"property {entry.key}": {"value": entry.value} for entry in proto.metadata_props}


def _flat(value: Any) -> list[tuple[str, str]]:
    flat, pending = [], [("", value)]
    while pending:
        key, inner = pending.pop()
        inner = inner.value if hasattr(inner, "value") else inner
        if hasattr(inner, "items"):
            pending += [(f"{key}/{name}".lstrip("/"), item) for name, item in inner.items()]
        else:
            flat.append((key, str(inner)))
    return sorted(flat)
