"""Proves every recorded result of a target against its fixture, as `convert` does: no proof may find a difference.

    python tests/mutants/alarms.py                    all that tests/golden/results.json records, 15 minutes of CPU time
    python tests/mutants/alarms.py --only llama:ort   those whose names contain each of the words
    python tests/mutants/alarms.py --budget 0.01MB    part by part

Exits with 1 if there is an alarm.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from golden.record import RESULTS, TARGETS
from support.models import fixtures

from graphpass.engine.manager import PassManager
from graphpass.engine.pipeline import parse_target
from graphpass.errors import GraphpassError
from graphpass.io import load
from graphpass.verify import compare_within


def cells(only: str) -> Iterator[tuple[str, str]]:
    """Yield file and target of each recorded result that this machine's processor runs."""
    for name, recorded in json.loads(RESULTS.read_text()).items():
        file, _, target = name.partition(":")
        is_asked_for = target in TARGETS and all(word in name for word in only.split(":"))
        if is_asked_for and "refused" not in recorded and parse_target(target).proving_device == "CPU":
            yield file, target


def proven(file: str, target: str, budget: str | None) -> tuple[str, str]:
    """Return ``same``, ``ALARM`` or ``not run``, and the reason."""
    chosen = parse_target(target)
    model = load(fixtures() / file)
    result = PassManager(chosen.pipeline(model)).run(model).model
    try:
        found = compare_within(model, result, budget, padding=chosen.reads_padding)
    except GraphpassError as error:
        return "not run", f"{error.id}: {error.message.splitlines()[0]}"
    return ("same", "") if found.divergence is None else ("ALARM", found.divergence.reason)


def main() -> int:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="")
    parser.add_argument("--budget")
    given = parser.parse_args()
    counts = Counter[str]()
    for file, target in cells(given.only):
        verdict, reason = proven(file, target, given.budget)
        counts[verdict] += 1
        if reason:
            sys.stdout.write(f"{verdict}: {file} {target}: {reason}\n")
            sys.stdout.flush()
    sys.stdout.write(f"{counts['same']} the same, {counts['ALARM']} alarms, {counts['not run']} not run\n")
    return counts["ALARM"] > 0


if __name__ == "__main__":
    sys.exit(main())
