"""Check adapter weights (LoRA) that a caller sets."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from graphpass.errors import UsageError
from graphpass.ir.types import shape_text
from graphpass.runtime.sessions.inputs import numpy_type

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import ArrayLike

    from graphpass.ir.cache import Cache
    from graphpass.runtime.sessions.inputs import Array


def adapter_values(adapters: Iterable[Cache], weights: Mapping[str, ArrayLike]) -> list[tuple[Cache, Array]]:
    """Return each variable with its new value, cast to the variable's element type.

    Args:
        adapters: The model's variables with adapter weights.
        weights: Values by variable name.

    Raises:
        UsageError: GP251, no variable has this name, or a value has another shape.
    """
    known = {adapter.name: adapter for adapter in adapters}
    values = []
    for name, weight in weights.items():
        adapter, value = known.get(name), np.asarray(weight)
        if adapter is None:
            there = f"there are {', '.join(known)}" if known else "the model has none"
            raise UsageError("GP251", f"{name} is not a variable of adapter weights: {there}")
        sizes = adapter.shape if adapter.shape is not None else (None,) * value.ndim
        if len(sizes) != value.ndim or any(
            isinstance(wanted, int) and wanted != size for wanted, size in zip(sizes, value.shape, strict=True)
        ):
            raise UsageError("GP251", f"expected adapter {name} {shape_text(sizes)}, got {list(value.shape)}")
        values.append((adapter, value.astype(numpy_type(adapter.element_type, f"adapter {name}"))))
    return values
