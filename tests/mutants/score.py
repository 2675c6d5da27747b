"""Puts faults into the results of all targets, one at a time, and counts those that the default proof finds.

    python tests/mutants/score.py                  all fixtures x targets; prints the score and each survivor
    python tests/mutants/score.py --only llama     pairs whose names contain the word
    python tests/mutants/score.py --only @80       models of 80 layers; @24 of 24, which `make mutants` leaves out
    python tests/mutants/score.py --sample 7       every seventh fault
    python tests/mutants/score.py --budget 0.01MB  by the proof of models too large to run whole

A fault that passes is listed if the report leaves operators to numbers, and proven if it does not. Exits with 1 if one
is proven.
"""

from __future__ import annotations

import argparse
import functools
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support.models import export
from support.scale import scaled

from graphpass.engine.manager import PassManager
from graphpass.engine.pipeline import parse_target
from graphpass.errors import GraphpassError
from graphpass.io import load
from graphpass.ir.model import Model
from graphpass.verify import compare_within
from graphpass.verify.cache_kinds import with_kinds_of
from mutants import attributes, hidden, layers  # noqa: F401 - registers their faults
from mutants.faults import Fault, faults

#: Enough for any fixture.
WHOLE = "600s,8GB"

#: Each form of attention, cache, mask and position, for each runtime at least thrice.
PAIRS = (
    "llama/onnx:cpu",
    "llama/onnx:ort",
    "llama/onnx-genai:ort",
    "llama/ov-stateful:gpu",
    "llama/ov-stateless:npu",
    "bloom/onnx:cpu",
    "falcon_alibi/onnx:paged",
    "deepseek_v3/ov-stateful:cpu",
    "gemma2/onnx:ort",
    "gemma3_text/onnx:cpu",
    "gemma3_text/ov-stateful:paged",
    "gpt2/onnx:cpu",
    "gpt_neo/onnx:gpu",
    "gpt_oss/onnx:cpu",
    "gptj/onnx:ort",
    "granitemoehybrid/ov-stateful:cpu",
    "lfm2/ov-stateful:gpu",
    "lfm2/onnx-genai:ort",
    "mamba/ov-stateful:cpu",
    "mistral_sw8/onnx:cpu",
    "mistral_sw8/onnx:ort",
    "opt/onnx:npu",
    "phi3/onnx:paged",
    "qwen3/ov-stateful:npu",
    "qwen3_moe/onnx:ort",
    "qwen3_moe/ov-stateful:cpu",
    "qwen3_next/ov-stateful:cpu",
)

#: Templates of models with a number of layers, and small sizes.
DEEP = (
    "llama@24:cpu",
    "llama@24:ort",
    "llama@80:cpu",
    "llama@80:ort-genai{context=512}",
    "lfm2@24:cpu",
    "mistral@24:gpu",
    "mistral@24:ort",
    "qwen3_moe@24:ort",
)


def converted(pair: str) -> tuple[Model, Model, str]:
    """Return a fixture, the result of a target, and the side on which the target reads padding."""
    source, _, target = pair.partition(":")
    chosen = parse_target(target)
    model = load(deep(source) if "@" in source else export(*source.split("/")))
    return model, PassManager(chosen.pipeline(model)).run(model).model, chosen.reads_padding


@functools.cache
def deep(source: str) -> Path:
    """Return the file of a model like ``llama@24``, with random weights."""
    name, _, count = source.partition("@")
    return scaled(name, "tiny", Path(tempfile.mkdtemp(prefix="mutants-")), int(count), seed=1)


def judged(reference: Model, result: Model, padding: str, fault: Fault, budget: str = WHOLE) -> str:
    """Return ``equivalent``, ``found``, ``listed``, ``proven``, or ``refused`` if the proof ends with an error."""
    if fault.equivalent:
        return "equivalent"
    try:
        mutant, _ = with_kinds_of(reference, fault.put_into(result))
        found = compare_within(reference, mutant, budget, padding=padding)
    except GraphpassError:
        return "refused"
    if not found.passed:
        return "found"
    is_listed = found.structure is not None and found.structure.equal < found.structure.operators
    return "listed" if is_listed else "proven"


def cases(only: str, sample: int) -> Iterator[tuple[str, Model, Model, str, Fault]]:
    """Yield the faults of all pairs."""
    number = 0
    for turn, pair in enumerate((*PAIRS, *DEEP) if "@" in only else PAIRS):
        if only in pair:
            reference, result, padding = converted(pair)
            for fault in faults(result, turn):
                number += 1
                if number % sample == 0:
                    yield pair, reference, result, padding, fault


def main() -> int:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="")
    parser.add_argument("--sample", type=int, default=1)
    parser.add_argument("--budget", default=WHOLE)
    given = parser.parse_args()
    began, counts = time.perf_counter(), Counter[str]()
    for pair, reference, result, padding, fault in cases(given.only, given.sample):
        verdict = judged(reference, result, padding, fault, given.budget)
        counts[verdict] += 1
        if verdict in {"listed", "proven", "equivalent"}:
            reason = f": {fault.equivalent}" if fault.equivalent else ""
            sys.stdout.write(f"{verdict}: {pair}, {fault.kind}, {fault.place}{reason}\n")
            sys.stdout.flush()
    tried = counts.total() - counts["equivalent"]
    score = (counts["found"] + counts["refused"]) / max(tried, 1)
    told = ", ".join(f"{counts[verdict]} {verdict}" for verdict in ("found", "refused", "listed", "proven"))
    sys.stdout.write(f"{tried} mutants: {told}; {score:.1%} in {time.perf_counter() - began:.0f} s\n")
    return counts["proven"] > 0


if __name__ == "__main__":
    sys.exit(main())
