"""Rules of transformers.js: names of caches, inputs that it feeds, sizes of empty caches.

Sources, of transformers.js 4.3.1: ``src/models/modeling_utils.js`` (`decoder_forward`, `addPastKeyValues`,
`getPastKeyValues`, `decoder_prepare_inputs_for_generation`), ``src/cache_utils.js`` (`get_seq_length`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from graphpass.analysis.caches.layers import roles_by_layer
from graphpass.engine.findings import Finding
from graphpass.ir.cache import Cache, Inventory
from graphpass.ir.inputs import BATCH_NAME, TOKEN_INPUTS, token_input
from graphpass.ir.model import Model
from graphpass.ir.types import Dimension
from graphpass.ir.values import fixed_size
from graphpass.targets.ort.context import configuration
from graphpass.targets.web.configs import Caches, configured_caches, like

_FORWARD = "transformers.js/src/models/modeling_utils.js"
_CONFIGS = "transformers.js/src/configs.js"

#: Inputs that transformers.js feeds to a decoder besides caches, all i64.
_FED = (TOKEN_INPUTS[0], "attention_mask", "position_ids", "num_logits_to_keep")

#: Inputs that the target replaces by constants.
_FIXED = ("logits_to_keep",)


@dataclass(frozen=True, slots=True)
class Named:
    """The caches that transformers.js feeds to a model.

    Attributes:
        caches: The caches; ``None`` if no model type of transformers.js has the caches of the model.
        stand_in: Entries for ``config.json`` with another type that has these caches; ``None`` if the input's
            configuration has them.
        kind: Type in the input's configuration.
    """

    caches: Caches | None
    stand_in: Mapping[str, Any] | None = None
    kind: str | None = None

    @property
    def options(self) -> list[str]:
        """Return the options of `rename-caches`."""
        if self.caches is None:
            return []
        layers = list(self.caches.layers)
        options = [f"layers=[{','.join(map(str, layers))}]"] if layers != list(range(len(layers))) else []
        return [*options, *(["recurrent=ssm"] if self.caches.recurrent == "ssm" else [])]


def caches_for(model: Model, inventory: Inventory) -> Named:
    """Return the caches that transformers.js feeds, by the model's configuration or another type.

    Args:
        model: The model, with config.json in its folder.
        inventory: The caches of the model.

    Raises:
        ReadError: GP116, the configuration is not a JSON object.
    """
    roles = _roles(inventory)
    config = configuration(model.path)
    kind = config.get("model_type")
    configured = configured_caches(config)
    if configured is not None and [*configured.layers.values()] == roles:
        return Named(configured, None, kind)
    other = like(roles)
    return Named(None, None, kind) if other is None else Named(configured_caches(other), other, kind)


def _roles(inventory: Inventory) -> list[frozenset[str]]:
    """Return the roles of the caches in each layer; names for caches without layer."""
    layers = roles_by_layer(inventory)
    placed = {cache.name for roles in layers for cache in roles.values()}
    others = [frozenset({cache.name}) for cache in inventory.caches if cache.name not in placed]
    return [*map(frozenset, layers), *others]


def why_not(model: Model, inventory: Inventory) -> tuple[str, str] | None:
    """Return why transformers.js does not run a model, and a remedy; ``None`` if it does.

    Args:
        model: The model, with config.json in its folder.
        inventory: The caches of the model.

    Raises:
        ReadError: GP116, the configuration is not a JSON object.
    """
    fed = {cache.read for cache in inventory.caches}
    tokens = token_input(model.graph)
    if tokens is None or tokens.name != TOKEN_INPUTS[0]:
        return "it has no input input_ids", "pass a decoder that reads token ids"
    if (size := fixed_size(tokens, 1)) is not None:
        return f"its input {tokens.name} is of fixed length {size}", "export it with a dynamic length"
    if inventory.of_kind("cross"):
        return "it reads states of an encoder", "pass a decoder without an encoder"
    for port in model.inputs:
        if port.name in fed or port.name in _FIXED:
            continue
        if port.name not in _FED:
            return f"its input {port.name} is not fed", f"run fix-input{{input={port.name}}} if it is a setting"
        if port.element_type != "i64" or (port.shape is not None and len(port.shape) != _rank(port.name)):
            shape = "a scalar" if _rank(port.name) == 0 else "of rank 2"
            return f"its input {port.name} is not i64 {shape}, as transformers.js feeds it", "export the model again"
    if not any(port.name == "logits" for port in model.outputs):
        return "it has no output logits", "export the model with its head"
    if not inventory.of_kind("kv"):
        reason = "it counts past positions by a cache of keys, and the model has none"
        return reason, "use target ort"
    if (cache := next(_of_open_size(inventory), None)) is not None:
        return f"empty caches get size 0 for unknown sizes, as in {cache}", "export it with fixed head sizes"
    if caches_for(model, inventory).caches is None:
        kinds = "; ".join(sorted({", ".join(sorted(roles)) for roles in _roles(inventory)}))
        return f"no type of transformers.js has layers with caches of {kinds}", "use target ort"
    return None


def _rank(name: str) -> int:
    return 0 if name == "num_logits_to_keep" else 2


def _of_open_size(inventory: Inventory) -> Iterator[str]:
    """Yield caches with a dimension of unknown size that is neither batch nor sequence."""
    for cache in inventory.caches:
        grows = {cache.axes.batch, cache.axes.sequence}
        if cache.shape is None or any(
            not isinstance(size, int) and axis not in grows for axis, size in enumerate(cache.shape)
        ):
            yield cache.name


def predict(model: Model, inventory: Inventory) -> Iterator[Finding]:
    """Predict how transformers.js executes a model.

    Args:
        model: The model, with config.json in its folder.
        inventory: The caches of the model.

    Yields:
        Findings on the model as a whole, then on each cache that is fed incorrectly.
    """
    if (refusal := why_not(model, inventory)) is not None:
        yield Finding.of_model(model, "refused", f"{refusal[0]}: {refusal[1]}", _FORWARD)
        return
    named = caches_for(model, inventory)
    if named.stand_in is not None:
        known = f"no decoder of type {named.kind}" if named.kind else "no configuration beside the model"
        stand_in = f"there is {known} with such caches: config.json names type {named.stand_in['model_type']}"
        yield Finding.of_model(model, "taken", stand_in, _CONFIGS)
    expected = set(_names(named.caches))
    ports = {port.name: port.shape or () for port in model.inputs}
    for cache in inventory.caches:
        source, reason = _FORWARD, _misfit(cache, ports[cache.read])
        if cache.read not in expected:
            source, reason = _CONFIGS, f"transformers.js feeds no input {cache.read}: run rename-caches"
        if reason is not None:
            yield Finding("cache", cache.name, "refused", cache.layer, cache.read, reason, source)


def _misfit(cache: Cache, shape: tuple[Dimension, ...]) -> str | None:
    """Return why transformers.js cannot create an empty cache, or miscounts its positions."""
    for axis, size in enumerate(shape):
        known = isinstance(size, int) or axis == cache.axes.sequence
        if not known and (axis != cache.axes.batch or size != BATCH_NAME):
            return (
                f"axis {axis} of an empty cache gets size 0, because its size is {size or 'unknown'}: run rename-caches"
            )
    if cache.axes.sequence not in {None, len(shape) - 2}:
        return "its positions are not on the second to last axis, where they are counted: run standardize-layout"
    return None


def _names(caches: Caches | None) -> Iterator[str]:
    assert caches is not None
    for layer, roles in caches.layers.items():
        for role in roles:
            if role in {"key", "value"}:
                yield f"past_key_values.{layer}.{role}"
            else:
                yield f"past_{caches.recurrent if role == 'recurrent' else role}.{layer}"
