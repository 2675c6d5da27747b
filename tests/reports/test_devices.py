"""Runtimes and adapters as text."""

from graphpass.reports.devices import devices_text
from graphpass.runtime.devices import Adapter, Runtime


def test_text_marks_software_adapters_and_missing_packages():
    runtimes = [Runtime("A", "1.0", (Adapter("GPU", is_software=True),)), Runtime("B", None, missing="install it")]
    text = devices_text(runtimes)
    assert text == "A: 1.0\n    GPU (by a software driver)\nB: not found\n    missing: install it"
