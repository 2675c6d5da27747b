"""Run random edit sequences on all fixtures and devices, compare each with recomputation, and print their seeds.

    python tests/edits/run.py --sequences 10000             all forms and devices; the GPU plugin runs on the CPU
    python tests/edits/run.py --device CPU --sequences 500  one device alone
    python tests/edits/run.py --only gemma3 --seed 7        forms whose names contain the word, from a seed

Sequences have about 20 edits. Forms of one device get equally many. Exits with 1 if any differs.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from itertools import cycle, groupby, islice
from multiprocessing import get_context
from multiprocessing.queues import Queue
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from edits.machine import Subject, run_edits
from edits.subjects import forms, on_device, subject
from hypothesis.errors import HypothesisException
from support.gpu_on_cpu import run_inside

from graphpass.errors import GraphpassError
from graphpass.machine import usable_cores

#: How many times as many sequences a form gets on the device as on the slowest one: they take that much less time.
SHARES = {"CPU": 100, "NPU": 50, "GPU": 1}

#: Forms of one model come out alike for other devices.
_SOURCES = ("ov-stateful", "onnx")


@dataclass(frozen=True)
class Case:
    """Random sequences on one form of a model.

    Attributes:
        model: Name of the fixture.
        variant: Its form.
        device: Where it runs.
        sequences: How many.
        seed: Of the first one.
    """

    model: str
    variant: str
    device: str
    sequences: int = 0
    seed: int = 0


def cases(devices: Sequence[str], only: str, sequences: int, seed: int) -> list[Case]:
    """Share the sequences out over forms and devices; each form has a seed of its own."""
    selected = [
        Case(name, variant, device)
        for name, variant in forms()
        for device in devices
        if only in f"{name}/{variant}" and (device == "CPU" or variant in _SOURCES)
    ]
    total, share, shared = sum(SHARES[case.device] for case in selected), 0, []
    for number, case in enumerate(selected):
        share += SHARES[case.device]
        count = sequences * share // total - sum(case.sequences for case in shared)
        shared.append(replace(case, sequences=count, seed=seed + number))
    return [case for case in shared if case.sequences]


def main() -> int:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", action="append", choices=list(SHARES))
    parser.add_argument("--only", default="")
    parser.add_argument("--sequences", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    parser.add_argument("--jobs", type=int, default=usable_cores())
    options = parser.parse_args()
    chosen = cases(options.device or list(SHARES), options.only, options.sequences, options.seed)
    # One process for all forms of a model, since they share what was recomputed.
    models = [list(group) for _, group in groupby(chosen, lambda case: case.model)]
    cores: Queue[int] = get_context("spawn").Queue()
    for core in islice(cycle(sorted(os.sched_getaffinity(0))), options.jobs):
        cores.put(core)
    with ProcessPoolExecutor(options.jobs, get_context("spawn"), _stay_on, (cores,)) as pool:
        differ = sum(pool.map(run_all, models))
    sys.stdout.write(f"{sum(case.sequences for case in chosen)} sequences, {differ} of {len(chosen)} forms differ\n")
    return bool(differ)


def _stay_on(cores: Queue[int]) -> None:
    """Keep to one core: threads of two runtimes on the same cores would wait for each other."""
    os.sched_setaffinity(0, {cores.get()})


def run_all(cases: Sequence[Case]) -> int:
    """Run the cases of one model, and return how many of them differ."""
    return sum(not run(case) for case in cases)


def run(case: Case) -> bool:
    """Run sequences on one form, print how they went, and return whether they held."""
    began, words = time.perf_counter(), "held"
    try:
        if case.device == "GPU":
            arguments = ("edits", f"{case.model}/{case.variant}", str(case.sequences), str(case.seed))
            run_inside("-m", "edits.gpu_sessions", *arguments)
        else:
            run_edits(tested(case), case.sequences, random=case.seed)
    except GraphpassError as error:
        words = f"refused: {error}".replace("\n", " ")
    except (AssertionError, HypothesisException) as error:
        words = f"DIFFERS: {error}"
    seconds = time.perf_counter() - began
    where = f"{case.model} {case.variant} on {case.device}"
    sys.stdout.write(f"{where}: {case.sequences} of seed {case.seed} {words}, {seconds:.1f} s\n")
    sys.stdout.flush()
    return "DIFFERS" not in words


def tested(case: Case) -> Subject:
    """Return the session to edit."""
    if case.device == "CPU":
        return subject(case.model, case.variant)
    return on_device(case.model, case.variant, case.device)


if __name__ == "__main__":
    sys.exit(main())
