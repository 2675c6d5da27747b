"""Sessions on the GPU plugin, which runs on the CPU here."""

from __future__ import annotations

import pytest
from support.gpu_on_cpu import run_inside

pytestmark = pytest.mark.slow


# Of phi3 shape inference leaves the number of heads open; the plugin mixes rows of granitemoehybrid's linear caches.
@pytest.mark.parametrize(
    "form",
    [
        "llama/ov-stateful",
        "gemma3_text/ov-stateful",
        "lfm2/ov-stateful",
        "phi3/onnx",
        "granitemoehybrid/ov-stateful",
        "mamba/ov-stateful",
    ],
)
def test_random_edits_equal_recomputation(form: str) -> None:
    run_inside("-m", "edits.gpu_sessions", "edits", form)


def test_random_edits_of_caches_in_eight_bits() -> None:
    run_inside("-m", "edits.gpu_sessions", "int8")
