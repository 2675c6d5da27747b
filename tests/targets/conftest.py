"""The GPU plugin, where there is a GPU or what stands in for one."""

from __future__ import annotations

import os

import pytest
from support.gpu_on_cpu import environment

from graphpass.runtime.devices.stand_in import ENVIRONMENT


@pytest.fixture
def gpu(monkeypatch):
    """Let checks try the GPU plugin: in the environment that is given, or in one that is set up for it."""
    if ENVIRONMENT not in os.environ:
        monkeypatch.setenv(ENVIRONMENT, str(environment()))
