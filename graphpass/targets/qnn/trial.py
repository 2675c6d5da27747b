"""Trial of a pair on HTP, in a separate process, with a comparison of logits."""

from __future__ import annotations

import tempfile
from pathlib import Path

from graphpass.engine.findings import Observation
from graphpass.errors import UnsupportedError
from graphpass.io import write_model
from graphpass.ir.model import Model
from graphpass.ir.phase import Phase
from graphpass.targets.worker import run_python

#: Tolerance of logits, relative to the largest: HTP computes in f16. Up to 0.02 was measured on the fixtures.
_TOLERANCE = 3e-2

_STEPS = 6

#: Length of the longest prompt: errors of angles in f16 are visible from about 40 positions on.
_LONGEST = 64

_RUN = (
    """
import json, sys
import numpy as np
from importlib.metadata import version
from pathlib import Path
from graphpass.errors import GraphpassError, UnsupportedError
from graphpass.io import load
from graphpass.runtime import open_pair
from graphpass.runtime.backends.qnn_request import nodes_on_cpu
from graphpass.runtime.embedding_model import let_take_ids
from graphpass.verify.conditioning import OF_ITS_OWN, ROUNDED_TO_F16, nudged_copies

*paths, where = sys.argv[1:]
answer = {"version": version("onnxruntime-qnn")}
models = [load(Path(path)) for path in paths]
try:
    left = [node for path in dict.fromkeys(paths) for node in nodes_on_cpu(Path(path))]
    if left:
        operator, name = left[0]
        more = f", and {len(left) - 1} more" if len(left) > 1 else ""
        raise UnsupportedError("GP321", f"{operator} {name} would run on the CPU{more}")

    def opened(pair, device="CPU"):
        session = open_pair(*pair, device=device)
        let_take_ids(pair[1], session)
        return session

    session, on_htp = opened(models), opened(models, "QNN")
    count = max(1, min(session.store.prompt, session.store.capacity - STEPS, LONGEST))
    vocabulary = min((port.shape[-1] for port in models[1].outputs if port.name == "logits"), default=99)
    ids = np.random.default_rng(0).integers(3, min(vocabulary, 99), count).tolist()
    steps = min(STEPS, session.store.capacity - len(ids))

    def follow(session, tokens=()):
        rows, tokens = [session.prefill([ids])[0, -1]], list(tokens)
        for number in range(steps):
            tokens += [int(rows[-1].argmax())] if number == len(tokens) else []
            rows.append(session.step([[tokens[number]]])[0, -1])
        return np.stack(rows).astype(np.float64), tokens

    def differ(rows):
        return float(np.abs(rows - expected).max() / np.abs(expected).max())

    expected, tokens = follow(session)
    actual, _ = follow(on_htp, tokens)
    answer["difference"] = differ(actual) if np.isfinite(actual).all() else None
    answer["steps"] = steps
    answer["tokens"] = int((expected.argmax(-1) == actual.argmax(-1)).sum())
    answer["allowed"] = TOLERANCE
    if answer["difference"] is not None and answer["difference"] > TOLERANCE:
        pairs = zip(*(nudged_copies(model, ROUNDED_TO_F16) for model in models))
        own = max((differ(follow(opened(pair), tokens)[0]) for pair in pairs), default=0.0)
        if own > 0:
            answer["own"] = own
            answer["allowed"] = max(TOLERANCE, OF_ITS_OWN * own)
except GraphpassError as error:
    answer["refused"] = error.message
with open(where, "w") as file:
    json.dump(answer, file)
""".replace("STEPS", str(_STEPS))
    .replace("LONGEST", str(_LONGEST))
    .replace("TOLERANCE", str(_TOLERANCE))
)

_COMPILE = """
import sys
from pathlib import Path
from graphpass.errors import GraphpassError
from graphpass.runtime.backends.qnn_request import compile_for_htp
import json
source, destination, where = sys.argv[1:]
answer = {}
try:
    compile_for_htp(Path(source), Path(destination))
except GraphpassError as error:
    answer["refused"] = error.message
with open(where, "w") as file:
    json.dump(answer, file)
"""

_MISSING = "onnxruntime-qnn is not installed: pip install 'graphpass[qnn]'"


def is_installed() -> bool:
    """Return whether ONNX Runtime's QNN provider is installed."""
    from importlib.util import find_spec

    return find_spec("onnxruntime_qnn") is not None


def observe(prefill: Model, decode: Model) -> Observation | str:
    """Compare the logits of a prompt and steps on HTP and on the CPU provider.

    Args:
        prefill: The prefill model.
        decode: The decode model.

    Returns:
        The observation, or the reason why HTP cannot be tried.
    """
    phase = Phase.find(decode)
    if phase is None:
        return "its shapes are dynamic; HTP requires static ones"
    if phase.length > 1:
        return "it is a prefill model: pass the folder with its decode model"
    if not is_installed():
        return _MISSING
    with tempfile.TemporaryDirectory() as scratch:
        paths = [_file(model, Path(scratch, name)) for model, name in ((prefill, "prefill"), (decode, "decode"))]
        answer = run_python(_RUN, paths)
    if isinstance(answer, str):
        return Observation("opened on the HTP of ONNX Runtime's QNN provider", refused=answer)
    tried = f"ran on HTP, without the CPU provider, onnxruntime-qnn {answer['version']}"
    if "refused" in answer:
        return Observation(tried, refused=answer["refused"])
    if answer["difference"] is None:
        return Observation(tried, wrong="its logits are NaN", ran=True)
    count = answer["steps"] + 1
    differs = (
        f"logits differ by {answer['difference']:.1e} of the largest, {answer['tokens']} of {count} tokens are equal"
    )
    if "own" in answer:
        differs += f"; on the CPU by {answer['own']:.1e} if embeddings are rounded to f16"
    wrong = f"its {differs}" if answer["difference"] > answer["allowed"] else None
    return Observation(f"{tried}, a prompt and {answer['steps']} steps: {differs}", wrong=wrong, ran=True)


def compile_file(source: Path) -> None:
    """Write ``NAME_ctx.onnx`` and its context beside ``NAME.onnx``.

    Raises:
        UnsupportedError: GP321, QNN is not installed, or refuses the model.
    """
    if not is_installed():
        raise UnsupportedError("GP321", f"cannot compile for HTP: {_MISSING}")
    destination = source.with_name(f"{source.stem}_ctx.onnx")
    answer = run_python(_COMPILE, [str(source), str(destination)])
    refused = answer if isinstance(answer, str) else answer.get("refused")
    if refused is not None or not destination.exists():
        raise UnsupportedError("GP321", f"cannot compile {source.name} for HTP: {refused or 'QNN wrote nothing'}")


def _file(model: Model, folder: Path) -> str:
    if model.path is not None and not model.edited:
        return str(model.path.resolve())
    folder.mkdir()
    write_model(model, folder / "model.onnx")
    return str(folder / "model.onnx")
