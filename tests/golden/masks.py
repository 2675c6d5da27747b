"""Records which effective masks of attention are known, of fixtures and of exports in other folders.

    python tests/golden/masks.py                   records the fixtures
    python tests/golden/masks.py CORPUS            records CORPUS/exporter/family, too

Rows are kept in masks.json; docs/verification.md shows them.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from support.models import fixtures
from support.quick_cases import model_files

import graphpass
from graphpass.analysis.caches.masks import find_masks
from graphpass.analysis.symbolic.text import expression_text
from graphpass.ir.bodies import inlined

RESULTS = HERE / "masks.json"

#: Characters of a mask that a row shows.
_LONGEST = 160


def row(path: Path) -> dict[str, object] | None:
    """Return the number of attention, of known masks, what is not known, and the masks; nothing without attention."""
    masks = inlined(graphpass.load(path)).analysis(find_masks)
    known = [mask for mask in masks if not mask.misses]
    shown = dict.fromkeys(
        expression_text(mask.visible)
        + ("" if mask.parts is None or not {"alibi", "bias"} & set(mask.parts) else ", and a bias")
        for mask in known
    )
    misses = dict.fromkeys(f"{miss.node.op}: {miss.reason}"[:_LONGEST] for mask in masks for miss in mask.misses)
    told = [one if len(one) <= _LONGEST else f"{one[:_LONGEST]} ..." for one in shown]
    return {"attention": len(masks), "known": len(known), "masks": told, "misses": list(misses)} if masks else None


def exports(corpus: Path) -> dict[str, Path]:
    """Return the exports in ``corpus`` by exporter and family."""
    found = sorted(path for path in corpus.glob("*/*") if any(path.glob("*.onnx")) or any(path.glob("*.xml")))
    return {f"{path.parent.name}/{path.name}": path for path in found}


def main(corpora: list[Path]) -> None:
    kept = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    kept["fixtures"] = {name: row(fixtures() / name) for name in model_files()}
    for corpus in corpora:
        kept.setdefault("others", {}).update({name: row(path) for name, path in exports(corpus).items()})
    RESULTS.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    for group in kept.values():
        rows = [found for found in group.values() if found]
        total, known = (sum(found[key] for found in rows) for key in ("attention", "known"))
        print(f"{len(rows)} models, {known} of {total} masks known")


if __name__ == "__main__":
    main([Path(name).resolve() for name in sys.argv[1:]])
