"""Records which results are equal to their reference for every input, by structure.

    python tests/golden/structure.py           all recorded results of targets (10 minutes of CPU time)
    python tests/golden/structure.py llama     those whose names contain the word

Rows are kept in structure.json; docs/proofs.md shows them.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import record
from support.models import fixtures

import graphpass
from graphpass.engine.manager import PassManager
from graphpass.engine.pipeline import parse_target
from graphpass.errors import GraphpassError
from graphpass.jobs.pipelines import pipeline_for
from graphpass.runtime.encoder_decoder import find_encoder_decoder, read_parts
from graphpass.verify.structure.encoder_decoders import compare_parts
from graphpass.verify.structure.proof import compare_structures
from graphpass.verify.structure_proof import StructureProof

RESULTS = HERE / "structure.json"

#: Regions of one result that are kept.
_REGIONS = 3


def row(path: str, target: str) -> dict[str, Any]:
    """Return the counts of operators, and the first that are left to numbers."""
    return _row(_of_folder(path, target) if (fixtures() / path).is_dir() else _of_model(path, target))


def _of_model(path: str, target: str) -> StructureProof | None:
    model = graphpass.load(fixtures() / path)
    passes = pipeline_for(parse_target(target), model)
    return compare_structures(model, PassManager(passes).run(model).model)


def _of_folder(path: str, target: str) -> StructureProof | None:
    """Return the proof of an encoder and its decoder."""
    with tempfile.TemporaryDirectory() as written:
        graphpass.convert(fixtures() / path, written, target, verify=False)
        sides = [find_encoder_decoder(folder) for folder in (fixtures() / path, Path(written))]
        reference, candidate = (read_parts(files) for files in sides if files is not None)
        return compare_parts(reference, candidate)


def _row(found: StructureProof | None) -> dict[str, Any]:
    if found is None:
        return {"operators": 0, "equal": 0, "unpadded": 0, "left": ["its sizes hold for prompts alone"]}
    left = [f"{region.operator} {region.node}: {region.reason}" for region in found.regions[:_REGIONS]]
    return {"operators": found.operators, "equal": found.equal, "unpadded": found.unpadded, "left": left}


def _names() -> Iterator[str]:
    """Yield the names of results: files and targets, then folders of encoder-decoders and targets."""
    for name, result in json.loads(record.RESULTS.read_text("utf-8")).items():
        if name.partition(":")[2] in record.TARGETS and "refused" not in result:
            yield name
    for folder in sorted(fixtures().glob("*/*/")):
        if find_encoder_decoder(folder) is not None:
            yield from (f"{folder.relative_to(fixtures())}:{target}" for target in ("cpu", "gpu", "ort"))


def main(words: list[str]) -> None:
    kept = json.loads(RESULTS.read_text("utf-8")) if RESULTS.exists() and words else {}
    for name in _names():
        path, _, target = name.partition(":")
        if all(word in name for word in words):
            try:
                kept[name] = row(path, target)
            except GraphpassError as error:
                # Targets of one dialect refuse folders of the other.
                print(f"{name}: {error.id}")
    RESULTS.write_text(json.dumps(dict(sorted(kept.items())), indent=1) + "\n", encoding="utf-8")
    whole = sum(one["operators"] == one["unpadded"] > 0 for one in kept.values())
    print(f"{whole} of {len(kept)} results are equal for every input, padding aside")


if __name__ == "__main__":
    main(sys.argv[1:])
