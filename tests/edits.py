"""Runs random edit sequences on all fixtures and devices, each compared with recomputation; prints their seeds.

    python tests/edits.py --sequences 10000             all forms on the CPU plugin and ONNX Runtime, and NPUs by NPUW
    python tests/edits.py --device GPU --sequences 20   the GPU plugin, which runs on the CPU (minutes a form)
    python tests/edits.py --only gemma3 --seed 7        forms whose names contain the word, from a seed

Sequences of about 20 edits are shared out evenly. Exits with 1 if any differs.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from hypothesis.errors import HypothesisException
from support.edit_machine import Subject, run_edits
from support.edited import forms, on_device, subject
from support.gpu_on_cpu import run_inside

from graphpass.errors import GraphpassError

DEVICES = ("CPU", "NPU", "GPU")

#: Forms of one model come out alike for other devices.
_SOURCES = ("ov-stateful", "onnx")


def cases(devices: list[str], only: str) -> list[tuple[str, str, str]]:
    """Return the pairs of form and device."""
    return [
        (name, variant, device)
        for name, variant in forms()
        for device in devices
        if only in f"{name}/{variant}" and (device == "CPU" or variant in _SOURCES)
    ]


def main() -> int:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", action="append", choices=DEVICES)
    parser.add_argument("--only", default="")
    parser.add_argument("--sequences", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    given = parser.parse_args()
    chosen = cases(given.device or ["CPU", "NPU"], given.only)
    failed = 0
    for number, (name, variant, device) in enumerate(chosen):
        count = given.sequences // len(chosen) + (number < given.sequences % len(chosen))
        if count:
            failed += not run(name, variant, device, count, given.seed + number)
    sys.stdout.write(f"{given.sequences} sequences, {failed} of {len(chosen)} forms differ\n")
    return bool(failed)


def run(name: str, variant: str, device: str, count: int, seed: int) -> bool:
    """Run sequences on one form, print how they went, and return whether they held."""
    began, words = time.perf_counter(), "held"
    try:
        if device == "GPU":
            arguments = ("edits", f"{name}/{variant}", str(count), str(seed))
            run_inside("-m", "support.gpu_sessions", *arguments)
        else:
            run_edits(tested(name, variant, device), count, random=seed)
    except GraphpassError as error:
        words = f"refused: {error}".replace("\n", " ")
    except (AssertionError, HypothesisException) as error:
        words = f"DIFFERS: {error}"
    seconds = time.perf_counter() - began
    sys.stdout.write(f"{name} {variant} on {device}: {count} of seed {seed} {words}, {seconds:.1f} s\n")
    sys.stdout.flush()
    return "DIFFERS" not in words


def tested(name: str, variant: str, device: str) -> Subject:
    """Return the session to edit."""
    return subject(name, variant) if device == "CPU" else on_device(name, variant, device)


if __name__ == "__main__":
    sys.exit(main())
