"""Run models once on random inputs, and compare the outputs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.analysis.caches.step_tokens import find_step_tokens
from graphpass.dialects.text import noise
from graphpass.errors import UnsupportedError
from graphpass.ir.types import Dimension
from graphpass.runtime.backends.device import Device
from graphpass.runtime.backends.request import open_request
from graphpass.runtime.embedding_model import seeded_tokens
from graphpass.runtime.sessions.inputs import InputPlan, StepInputs
from graphpass.verify.difference import OutputComparer, Tolerance

if TYPE_CHECKING:
    from graphpass.ir.model import Model
    from graphpass.ir.text.statements import Statement
    from graphpass.runtime.sessions.inputs import Array

#: Size of dynamic dimensions.
_SIZE = 3

#: Relative tolerance by type, of each value and of the root mean square of its output; 1e-3 for other types.
_SHARES = {"float16": 2e-2, "bfloat16": 1e-1}

#: Prefix of the difference reported for a model that does not run.
UNABLE = "the result does not run"

#: Batch size; GroupQueryAttention supports several new tokens after a past for one row only.
_ROWS = 1


def noise_for(statements: Iterable[Statement], sizes: Mapping[str, int] | None = None) -> dict[str, Array]:
    """Return random arrays for the inputs of a graph, seeded by the inputs' names.

    Args:
        statements: The graph.
        sizes: Sizes of symbolic dimensions by name; 3 for others.
    """

    def size(dimension: Dimension) -> int:
        return dimension if isinstance(dimension, int) else (sizes or {}).get(str(dimension), _SIZE)

    arrays: dict[str, Array] = {}
    for statement in statements:
        if statement.kind == "Parameter":
            (name,), (type_,) = statement.results, statement.types
            arrays[name] = noise(type_.element_type, tuple(map(size, type_.shape or ())), name)
    return arrays


def step_for(model: Model) -> dict[str, Array]:
    """Return inputs of one step of a decoder: batch 1, past 3, 3 new tokens.

    Raises:
        UnsupportedError: GP320, the model is not a decoder, or has an unsupported input; GP325, the size of its
            embeddings is dynamic.
    """
    inventory = analyze_caches(model)
    past = _SIZE if inventory.caches else 0
    plan = plan_of(model)
    feeds = plan.feeds(random_step(plan, _ROWS, past, _SIZE))
    ports = {port.name: port for port in model.inputs}
    for cache in inventory.caches:
        if cache.read in ports:
            sizes = {cache.axes.batch: _ROWS, cache.axes.sequence: past}
            shape = (
                size if isinstance(size, int) else sizes.get(axis, _SIZE)
                for axis, size in enumerate(ports[cache.read].shape or ())
            )
            feeds[cache.read] = noise(ports[cache.read].element_type, tuple(shape), cache.read)
    return feeds


def plan_of(model: Model) -> InputPlan:
    """Return the `InputPlan` of a model."""
    inventory = analyze_caches(model)
    return InputPlan(model.inputs, inventory, find_step_tokens(model, inventory))


def random_step(plan: InputPlan, batch: int, past: int, length: int) -> StepInputs:
    """Return the inputs of a step of random tokens, without padding.

    Args:
        plan: The inputs of the model.
        batch: Number of rows.
        past: Number of positions in the caches.
        length: Number of new tokens in each row.

    Raises:
        UnsupportedError: GP325, the size of the model's embeddings is dynamic.
    """
    positions = np.tile(np.arange(past, past + length), (batch, 1))
    ids = noise("i64", (batch, length), "tokens")
    rows = seeded_tokens(plan.hidden, plan.levels)(ids) if plan.takes_embeddings else None
    return StepInputs(ids, np.ones((batch, past + length), np.int64), positions, past, embeddings=rows)


def evaluate(model: Model, feeds: Mapping[str, Array]) -> dict[str, Array]:
    """Run a model once in the runtime of its dialect.

    Args:
        model: The model.
        feeds: An array for each input by name, in its element type.

    Returns:
        The outputs by name, in their element types.

    Raises:
        UnsupportedError: GP321, the runtime cannot load the model; GP322, the run failed.
    """
    return open_request(model, Device()).infer(dict(feeds))


def accepts_feeds(model: Model, feeds: Iterable[str]) -> bool:
    """Return whether a model without variables has arrays for all inputs.

    Args:
        model: The model; models with variables accept no feeds.
        feeds: Names of the arrays, possibly more than the model's inputs.
    """
    return {port.name for port in model.inputs} <= set(feeds) and not any(model.graph.of_op("ReadValue"))


def difference_on(reference: Mapping[str, Array], candidate: Model, feeds: Mapping[str, Array]) -> str | None:
    """Compare the outputs of a model with reference outputs.

    Args:
        reference: The reference outputs by name.
        candidate: The model to run.
        feeds: Inputs by name; names that the model lacks are ignored.

    Returns:
        The first difference, as text; ``None`` if all outputs agree.
    """
    names = {port.name for port in candidate.inputs}
    try:
        results = evaluate(candidate, {name: array for name, array in feeds.items() if name in names})
    except UnsupportedError as error:
        return f"{UNABLE}: {error.message}"
    for name, expected in reference.items():
        if name not in results:
            return f"output {name} is missing"
        if (difference := differing(name, expected, results[name])) is not None:
            return difference
    return None


def differing(name: str, expected: Array, actual: Array) -> str | None:
    """Return the first difference beyond rounding, as text; ``None`` if the arrays agree.

    Args:
        name: Name of the output.
        expected: The reference's output, whose type and root mean square determine the tolerance.
        actual: The other model's output.
    """
    finite = expected[np.isfinite(expected)].astype(np.float64)
    size = float(np.sqrt(np.square(finite).mean())) if finite.size else 0.0
    share = _SHARES.get(expected.dtype.name, 1e-3)
    comparer = OutputComparer(Tolerance(share * size, share))
    if (difference := comparer.compare((0, 0), name, expected, actual)) is None:
        return None
    return f"output {name}{list(difference.index) or ''}: {difference.reason}"
