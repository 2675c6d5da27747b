"""Records which results are equal to their reference for every input, by structure.

    python tests/golden/structure.py           all recorded results of targets (10 minutes of CPU time)
    python tests/golden/structure.py llama     those whose names contain the word

Rows are kept in structure.json; docs/proofs.md shows them.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import record
from support.models import fixtures

import graphpass
from graphpass.engine.manager import PassManager
from graphpass.engine.pipeline import parse_target
from graphpass.jobs.pipelines import pipeline_for
from graphpass.verify.structure.proof import compare_structures

RESULTS = HERE / "structure.json"

#: Regions of one result that are kept.
_REGIONS = 3


def row(path: str, target: str) -> dict[str, Any]:
    """Return the counts of operators, and the first that are left to numbers."""
    model = graphpass.load(fixtures() / path)
    passes = pipeline_for(parse_target(target), model)
    found = compare_structures(model, PassManager(passes).run(model).model)
    if found is None:
        return {"operators": 0, "equal": 0, "unpadded": 0, "left": ["its sizes hold for prompts alone"]}
    left = [f"{region.operator} {region.node}: {region.reason}" for region in found.regions[:_REGIONS]]
    return {"operators": found.operators, "equal": found.equal, "unpadded": found.unpadded, "left": left}


def main(words: list[str]) -> None:
    kept = json.loads(RESULTS.read_text("utf-8")) if RESULTS.exists() and words else {}
    for name, result in json.loads(record.RESULTS.read_text("utf-8")).items():
        path, _, target = name.partition(":")
        if target in record.TARGETS and "refused" not in result and all(word in name for word in words):
            kept[name] = row(path, target)
    RESULTS.write_text(json.dumps(dict(sorted(kept.items())), indent=1) + "\n", encoding="utf-8")
    whole = sum(one["operators"] == one["unpadded"] > 0 for one in kept.values())
    print(f"{whole} of {len(kept)} results are equal for every input, padding aside")


if __name__ == "__main__":
    main(sys.argv[1:])
