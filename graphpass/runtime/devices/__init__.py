"""Find runtimes and adapters on this machine."""

from __future__ import annotations

from graphpass.runtime.devices.find import Adapter, Runtime, find_runtimes

__all__ = ["Adapter", "Runtime", "find_runtimes"]
