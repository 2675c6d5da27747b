"""Comparison of the operators of two models."""

from __future__ import annotations

import hashlib
from collections import Counter
from typing import Any

import numpy

from graphpass.dialects.onnx.tensors import SMALL
from graphpass.dialects.onnx.walk import ONNX_DOMAINS
from graphpass.ir.bodies import inlined
from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.model import Model
from graphpass.ir.types import shape_text
from graphpass.reports.diff.changes import Change, Facets, changes_between

#: Largest constant, in elements, that is printed by value; larger constants are printed as digests.
PRINTED = 16


def operators_of(model: Model) -> dict[str, Node]:
    """Return the operators of a model by name, in topological order, with those in bodies.

    Constants and inputs are excluded. An output has the name ``output NAME``. Duplicate names get suffixes: ``#2``.
    """
    operators: dict[str, Node] = {}
    counts: Counter[str] = Counter()
    for node in inlined(model).graph.nodes:
        if node.op not in {"Constant", "Parameter"}:
            name = f"output {node.name}" if node.op == "Result" else node.name
            counts[name] += 1
            operators[name if counts[name] == 1 else f"{name}#{counts[name]}"] = node
    return operators


def compare_operators(before: Model, after: Model) -> tuple[Change, ...]:
    """Return the differences between the operators of two models of one dialect.

    Operators are paired by name. Remaining operators with equal facets count as renamed, since exporters generate names
    anew at each export.

    Args:
        before: The first model; changes have its names.
        after: The second model.
    """
    olds, news = _described(before), _described(after)
    names = {name: name for name in news if name in olds}
    left: dict[object, list[str]] = {}
    for name, facets in olds.items():
        if name not in news:
            left.setdefault(_anonymous(facets), []).append(name)
    renamed = []
    translated: dict[str, Facets] = {}
    for name, facets in news.items():  # in topological order, so inputs of an operator are paired before it
        facets = {key: _translated(key, text, names) for key, text in facets.items()}
        if name not in names and (candidates := left.get(_anonymous(facets))):
            names[name] = candidates.pop(0)
            renamed.append(Change(names[name], {"name": names[name]}, {"name": name}))
            olds.pop(names[name])
        else:
            translated[name] = facets
    return (*changes_between(olds, translated), *renamed)


def _described(model: Model) -> dict[str, Facets]:
    graph = inlined(model).graph
    return {name: _facets(node, graph, model) for name, node in operators_of(model).items()}


def _anonymous(facets: Facets) -> tuple[tuple[str, str], ...]:
    """Return facets without names of values."""
    return tuple((key, text.partition(" called ")[0]) for key, text in facets.items())


def _translated(key: str, text: str, names: dict[str, str]) -> str:
    """Return a facet; in ``reads N`` the producer has its name in the first model."""
    if not key.startswith("reads "):
        return text
    source, comma, port = text.partition(", output ")
    return names.get(source, source) + comma + port


def _facets(node: Node, graph: Graph, model: Model) -> Facets:
    facets = {"kind": node.op, **dict(sorted(attributes_of(node, model).items()))}
    for port, value in enumerate(node.inputs):
        facets[f"reads {port}"] = "nothing" if value is None else _source(value, graph)
    for value in node.outputs:
        names = sorted(_names(node, value))
        called = f" called {', '.join(names)}" if names else ""
        facets[f"makes {value.port}"] = f"{value.element_type} {shape_text(value.shape)}{called}"
    return facets


def _names(node: Node, value: Value) -> set[str]:
    if hasattr(node.native, "outputs") and value.port < node.native.get_output_size():
        names: set[str] = node.native.output(value.port).get_names()
        return names
    return {value.name} - {""}


def _source(value: Value, graph: Graph) -> str:
    producer = graph.producer(value)
    if producer.op == "Constant":
        return constant_in_words(producer, graph) or f"weight {producer.name}"
    return producer.name if value.port == 0 else f"{producer.name}, output {value.port}"


def constant_in_words(node: Node, graph: Graph) -> str | None:
    """Return type, shape and elements of a small constant; ``None`` for a weight.

    Args:
        node: The constant. More than 16 elements are replaced by a digest.
        graph: The graph of the node.
    """
    value = node.outputs[0]
    if value.element_type == "string":
        return f"strings {node.name}"
    constant = graph.constant(value, SMALL)
    if constant is None or constant.nbytes > SMALL:
        return None
    described = f"{value.element_type} {shape_text(value.shape)}"
    if constant.size <= PRINTED:
        return f"{described} = {constant.tolist()}"
    return f"{described} with digest {hashlib.sha256(numpy.ascontiguousarray(constant).tobytes()).hexdigest()[:16]}"


def attributes_of(node: Node, model: Model) -> dict[str, str]:
    """Return the attributes of an operator except bodies, as text.

    Args:
        node: An operator of the model or of a body.
        model: The model, whose dialect determines the names of attributes.
    """
    if model.dialect == "openvino":
        return {str(name): str(value) for name, value in node.native.get_attributes().items()}
    import onnx

    if not isinstance(node.native, onnx.NodeProto):
        return {}
    attributes = {"domain": node.native.domain} if node.native.domain not in ONNX_DOMAINS else {}
    bodies = {onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS}  # their operators are inlined
    return attributes | {
        attribute.name: plain_attribute(attribute)
        for attribute in node.native.attribute
        if attribute.type not in bodies
    }


def plain_attribute(attribute: Any) -> str:
    """Return the value of an ONNX attribute as text; a digest for tensors and graphs."""
    import onnx

    if attribute.type in {
        onnx.AttributeProto.FLOAT,
        onnx.AttributeProto.INT,
        onnx.AttributeProto.STRING,
        onnx.AttributeProto.FLOATS,
        onnx.AttributeProto.INTS,
        onnx.AttributeProto.STRINGS,
    }:
        return str(onnx.helper.get_attribute_value(attribute))
    return f"digest {hashlib.sha256(attribute.SerializeToString(deterministic=True)).hexdigest()[:16]}"
