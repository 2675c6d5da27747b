"""The GPU plugin, where an environment stands in for a GPU."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from graphpass.checks.confirm_gpu import ENVIRONMENT

#: An environment in which the GPU plugin runs; /work/shared/gpu-on-cpu says how to make one.
_PLACE = Path(os.environ.get(ENVIRONMENT, "/tmp/gpu-on-cpu"))


@pytest.fixture
def gpu(monkeypatch):
    """The environment; checks use it, too."""
    if not (_PLACE / "env.sh").exists():
        pytest.skip(f"{_PLACE} is no environment with a GPU plugin")
    monkeypatch.setenv(ENVIRONMENT, str(_PLACE))
    return _PLACE
