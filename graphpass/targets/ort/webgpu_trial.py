"""Trial on ONNX Runtime's WebGPU provider, in a separate process."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphpass.engine.findings import Observation
from graphpass.errors import GraphpassError
from graphpass.io import load
from graphpass.ir.operators import NORMS, PRODUCTS, STATE_OPERATORS
from graphpass.runtime.devices.apart import run_apart
from graphpass.runtime.devices.webgpu import NAME, PROVIDER, environment, for_adapter
from graphpass.targets.ort.generated import (
    Generated,
    batches_for,
    generate,
    generated_difference,
    largest_difference,
    on_cpu,
)

if TYPE_CHECKING:
    from graphpass.dialects.onnx.model import OnnxModel

#: Seconds after which a runtime counts as hanging.
_LIMIT = 1800

#: Suffix of the name of attention that ONNX Runtime fuses with norms of queries and keys when it opens a model.
_JOINED = "_qknorm"

#: Operators that dominate the time of a model; other operators may run on the CPU provider.
_HEAVY = NORMS | PRODUCTS | STATE_OPERATORS.keys() | {"MoE", "QMoE", "Softmax"}


def observe(model: OnnxModel) -> Observation | str:
    """Generate with ``model`` on WebGPU.

    If the adapter does not support f16, a model in f16 is tried in f32.

    Returns:
        The observation, or the reason why no trial is possible.
    """
    where = environment()
    if isinstance(where, str):
        return where
    model, precision = for_adapter(model, is_software=bool(where))
    tried = f"generated on ONNX Runtime's WebGPU provider{precision}"
    with tempfile.TemporaryDirectory(prefix=".graphpass_webgpu-") as scratch, model.on_disk() as file:
        answer = Path(scratch, "answer.json")
        command = [sys.executable, "-m", __name__, str(file.resolve()), str(answer)]
        if failure := run_apart(command, answer, _LIMIT, where):
            return Observation(tried, refused=failure)
        observed: dict[str, Any] = json.loads(answer.read_text(encoding="utf-8"))
    if "obstacle" in observed:
        return str(observed["obstacle"])
    if "refused" in observed:
        return Observation(tried, refused=observed["refused"])
    elsewhere = Counter(op for op, provider in observed["ran"].values() if provider != PROVIDER)
    counted = ", ".join(f"{count} {op}" for op, count in sorted(elsewhere.items()))
    return Observation(
        f"{tried}, logits within {observed['largest']:.2g}; on the CPU provider ran {counted or 'nothing'}",
        fused=frozenset(
            name.removesuffix(_JOINED)
            for name, (op, provider) in observed["ran"].items()
            if provider == PROVIDER and op in STATE_OPERATORS
        ),
        wrong=observed["wrong"],
        ran=True,
        elsewhere=frozenset(
            name for name, (op, provider) in observed["ran"].items() if provider != PROVIDER and op in _HEAVY
        ),
    )


def _run(file: Path, answer: Path) -> None:
    """Generate in the separate process, and write the results to ``answer``."""
    from graphpass.runtime.backends.device import Device
    from graphpass.runtime.backends.onnxruntime_request import OnnxRuntimeRequest
    from graphpass.runtime.backends.stateless import StatelessStore
    from graphpass.runtime.sessions.cache_store import stored_caches
    from graphpass.runtime.sessions.session import DecodeSession

    results: dict[str, Any] = {}
    try:
        model = load(file)
        batches = batches_for(model)
        right = on_cpu(model, batches)
        if isinstance(right, str):
            answer.write_text(json.dumps({"obstacle": right}), encoding="utf-8")
            return
        store = StatelessStore(model, model.analysis(stored_caches), Device(NAME, profile=answer.parent))
        ours: list[Generated] = [generate(DecodeSession(store), rows) for rows in batches]
        assert isinstance(store.request, OnnxRuntimeRequest)
        largest = largest_difference(right, ours)
        results = {"wrong": generated_difference(right, ours, model), "largest": largest, "ran": store.request.ran()}
    except GraphpassError as error:
        results = {"refused": error.message}
    answer.write_text(json.dumps(results), encoding="utf-8")


if __name__ == "__main__":
    _run(*map(Path, sys.argv[1:]))
    # Skip the cleanup at exit, during which drivers occasionally crash.
    os._exit(0)
