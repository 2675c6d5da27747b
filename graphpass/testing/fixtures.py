"""Fixtures of pytest; enable them by ``pytest_plugins = ["graphpass.testing.fixtures"]`` in conftest.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from graphpass.testing.families import FAMILIES
from graphpass.testing.models import tiny_model

if TYPE_CHECKING:
    from graphpass.ir.model import Model
    from graphpass.ir.types import Dialect


@pytest.fixture(params=["onnx", "openvino"])
def dialect(request: pytest.FixtureRequest) -> Dialect:
    """Run a test once for each dialect.

    Returns:
        The dialect.
    """
    chosen: Dialect = request.param
    return chosen


@pytest.fixture(params=FAMILIES)
def family(request: pytest.FixtureRequest) -> str:
    """Run a test once for each family.

    Returns:
        The name of the family.
    """
    return str(request.param)


@pytest.fixture
def tiny(family: str, dialect: Dialect) -> Model:
    """Run a test once for the tiny model of each family, in each dialect.

    Args:
        family: Name of the family, from the fixture of this name.
        dialect: The dialect, from the fixture of this name.

    Returns:
        The model.
    """
    return tiny_model(family, dialect)
