"""Records what every fixture becomes: the digest of each result, or the id of each refusal.

    python tests/golden/record.py record     writes results.json (10 minutes of CPU time)
    python tests/golden/record.py check      compares; prints what differs, exits with 1 if anything does

``--only llama:cpu`` takes the cases whose names contain each of the given words. A result is kept as two hashes: of the
whole structure with all names (`Model.digest`), and of the operators and edges alone, which a renamed inner node leaves
unchanged. Targets also keep how many parts of each kind the contract's rules find fused, refused ...
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import itertools
import json
import multiprocessing
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

RESULTS = HERE / "results.json"

# The form of gpu{cache=reorder} follows the plugin that is there; recorded is that of machines without a GPU.
os.environ.pop("GRAPHPASS_GPU_ENVIRONMENT", None)

TARGETS = (
    "cpu",
    "cpu{cache=reorder}",
    "gpu",
    "gpu{cache=reorder}",
    "gpu{cache=reorder,trim=begin-one}",
    "npu",
    "paged",
    "ort",
    "ort{cache=reorder}",
    "ort-genai",
)

#: Pipelines on a model as exported, by the dialect that they take; their names outlive renamed passes.
PIPELINES = {
    "onnx": {
        "convert": "to-openvino",
        "insert-reorder": "insert-reorder{form=onnx}",
        "insert-trim": "insert-reorder{form=cut}",
        "add-tree-mask": "add-tree-mask",
        "pack-kv": "pack{only=kv}",
        "pack-linear": "pack{only=linear}",
        "unpack-kv": "pack{only=kv},unpack{only=kv}",
        "unpack-linear": "pack{only=linear},unpack{only=linear}",
        "layout-BSHD": "standardize-layout{to=BSHD}",
        "layout-value-transposed": 'standardize-layout{to="BHSD+value-transposed"}',
        "static-cache": "static-cache{capacity=32}",
        "lowered-static-cache": "lower-operators{only=[group-query-attention]},static-cache{capacity=32}",
        "make-static": "make-static{length=4,past=16}",
    },
    "openvino": {
        "make-stateful": "make-stateful",
        "make-stateful-without-beams": "make-stateful{beam-index=false}",
        "make-stateless": "make-stateless",
        "insert-reorder": "insert-reorder",
        "insert-reorder-compact": "insert-reorder{form=compact}",
        "insert-trim": "insert-reorder{form=cut}",
        "insert-snapshot": "insert-snapshot{slots=4}",
        "add-tree-mask": "add-tree-mask",
        "window-from-positions": "window-from-positions",
        "tree-windows": "window-from-positions,add-tree-mask",
        "expose-position-ids": "expose-position-ids",
        "pack-kv": "pack{only=kv}",
        "pack-linear": "pack{only=linear}",
        "unpack-kv": "pack{only=kv},unpack{only=kv}",
        "unpack-linear": "pack{only=linear},unpack{only=linear}",
        "layout-BSHD": "standardize-layout{to=BSHD}",
        "layout-value-transposed": 'standardize-layout{to="BHSD+value-transposed"}',
        "make-static": "make-static{length=4,past=16}",
    },
}

#: What of a node's attributes counts in the hash of a structure.
ATTRIBUTES = ("axis", "axes", "order", "transpose_a", "transpose_b", "variable", "causal")

Result = dict[str, Any]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=["record", "check"])
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--jobs", type=int, default=multiprocessing.cpu_count())
    given = parser.parse_args()
    found = run(cases(given.only), given.jobs)
    if given.action == "record":
        known = json.loads(RESULTS.read_text()) if RESULTS.is_file() and given.only else {}
        RESULTS.write_text(_text(known | found))
        return 0
    differences = list(compare(found, json.loads(RESULTS.read_text())))
    print("\n".join(differences) or f"{len(found)} results are as recorded")
    return bool(differences)


def run(names: list[str], jobs: int) -> dict[str, Result]:
    """Return the results of these cases, those of one file together, since they share work.

    A process lives for a few files only, since OpenVINO never forgets.
    """
    files = [list(group) for _, group in itertools.groupby(names, lambda name: name.partition(":")[0])]
    with multiprocessing.get_context("spawn").Pool(jobs, maxtasksperchild=2) as pool:
        found = [each for part in pool.imap(_results, files) for each in part]
    return dict(zip(names, found, strict=True))


def _results(names: list[str]) -> list[Result]:
    return [result(name) for name in names]


def compare(found: dict[str, Result], recorded: dict[str, Result]) -> Iterator[str]:
    """One line a difference."""
    for name, now in found.items():
        before = recorded.get(name)
        if before is None:
            yield f"{name}: was never recorded"
        elif now != before:
            changed = [key for key in sorted(now | before) if now.get(key) != before.get(key)]
            only_names = all(key.endswith("digest") for key in changed)
            yield f"{name}: " + (
                "inner names differ"
                if only_names
                else "; ".join(f"{key} {before.get(key)} -> {now.get(key)}" for key in changed)
            )


def cases(words: list[str] | None = None) -> list[str]:
    """The names of all cases that contain each of ``words``: ``llama/onnx/model.onnx:cpu``."""
    from support.models import fixtures

    root = fixtures()
    names = []
    for file in sorted([*root.rglob("*.onnx"), *root.rglob("*.xml")]):
        if "tokenizer" in file.name:
            continue
        kinds = [*TARGETS, *PIPELINES["onnx" if file.suffix == ".onnx" else "openvino"]]
        kinds += ["split", "split-to-openvino"] if file.suffix == ".onnx" else ["split"]
        names += [f"{file.relative_to(root)}:{kind}" for kind in kinds]
    for folder in sorted({file.parent for file in root.rglob("*encoder_model*")}):
        names += [f"{folder.relative_to(root)}:folder:{target}" for target in TARGETS if "{" not in target]
    return [name for name in names if all(word in name for word in words or [])]


def result(name: str) -> Result:
    """Return the digests of one case."""
    from support.models import fixtures

    from graphpass.errors import GraphpassError

    place, _, kind = name.partition(":")
    path = fixtures() / place
    try:
        return _job(kind)(path)
    except GraphpassError as error:
        return {"refused": error.id}
    except Exception as error:  # a failure is a result, too
        return {"failed": type(error).__name__}


def _job(kind: str) -> Callable[[Path], Result]:
    if kind.startswith("folder:"):
        return partial(_folder, target=kind.removeprefix("folder:"))
    if kind.startswith("split"):
        return partial(_split, to_openvino=kind.endswith("openvino"))
    return partial(_target, text=kind) if kind in TARGETS else partial(_pipeline, kind=kind)


@lru_cache(1)
def _load(path: Path) -> Any:
    import graphpass

    return graphpass.load(path)


@lru_cache(16)
def _after(path: Path, passes: tuple[Any, ...]) -> Any:
    """Run passes; those with which pipelines of other targets begin as well are run once for all of them."""
    import graphpass

    start = max((common for common in _common(path, passes) if len(common) < len(passes)), key=len, default=())
    model = _after(path, start) if start else _load(path)
    return graphpass.PassManager(passes[len(start) :]).run(model).model


def _common(path: Path, passes: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    for other in _pipelines(path):
        pairs = zip(passes, other, strict=False)
        yield tuple(one for one, _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))


@lru_cache(1)
def _pipelines(path: Path) -> list[tuple[Any, ...]]:
    from graphpass.engine.pipeline import parse_target
    from graphpass.errors import GraphpassError

    found = []
    for text in TARGETS:
        with contextlib.suppress(GraphpassError):
            found.append(tuple(parse_target(text).pipeline(_load(path))))
    return found


def _target(path: Path, text: str) -> Result:
    from graphpass.engine.pipeline import parse_target
    from graphpass.targets import check_model

    target = parse_target(text)
    made = _after(path, tuple(target.pipeline(_load(path))))
    report = check_model(made, target.name, confirm=False)
    findings = Counter(f"{finding.subject} {finding.verdict}" for finding in report.findings)
    return {**_hashes(made), "findings": dict(sorted(findings.items()))}


def _pipeline(path: Path, kind: str) -> Result:
    import graphpass

    model = _load(path)
    return _hashes(graphpass.PassManager(graphpass.parse(PIPELINES[model.dialect][kind])).run(model).model)


def _split(path: Path, *, to_openvino: bool) -> Result:
    import graphpass
    from graphpass.artifacts.split import preparation, stage_split
    from graphpass.engine.split import Split

    model, split = graphpass.load(path), Split(prompt=8, chunk=4, capacity=16)
    prepared = preparation(model, "openvino" if to_openvino else model.dialect, split)
    with tempfile.TemporaryDirectory() as folder:
        ready = graphpass.PassManager(prepared).run(model).model if prepared else model
        models, _ = stage_split(ready, split, Path(folder))
        return {f"{name} {key}": text for name, made in models.items() for key, text in _hashes(made).items()}


def _folder(path: Path, target: str) -> Result:
    import graphpass
    from graphpass.engine.pipeline import parse_target
    from graphpass.runtime.encoder_decoder import find_encoder_decoder

    parts, chosen = find_encoder_decoder(path), parse_target(target)
    assert parts is not None
    found = {}
    for name, file in (("encoder", parts.encoder), ("decoder", parts.decoder)):
        model = graphpass.load(file)
        made = chosen.encoder_pipeline if name == "encoder" else chosen.decoder_pipeline
        passes = made(model, parts.first)
        hashes = _hashes(graphpass.PassManager(passes).run(model).model)
        found |= {f"{name} {key}": text for key, text in hashes.items()}
    return found


def _hashes(model: Any) -> Result:
    nodes = sum(node.op != "Constant" for node in model.graph.nodes)
    return {"digest": model.digest()[:16], "structure": _structure(model)[:16], "nodes": nodes}


def _structure(model: Any) -> str:
    """A hash of operators, edges, axes, small constants and names of inputs, outputs and variables.

    Equal constants count once: whether two readers share one is not a difference.
    """
    hashes: list[str] = []
    for node in model.graph.nodes:
        told: list[Any] = [node.op, [(key, repr(node.attributes.get(key))) for key in ATTRIBUTES]]
        told.append([None if value is None else (hashes[value.node], value.port) for value in node.inputs])
        told.append([(value.element_type, None if value.shape is None else len(value.shape)) for value in node.outputs])
        if node.op in {"Parameter", "Result"}:
            told.append(node.name if node.op == "Result" else node.outputs[0].name)
        if node.op == "Constant":
            content = model.graph.constant(node.outputs[0], limit=256)
            told.append((node.outputs[0].shape, None if content is None else content.tolist()))
        hashes.append(hashlib.sha256(repr(told).encode()).hexdigest())
    constants = {one for one, node in zip(hashes, model.graph.nodes, strict=True) if node.op == "Constant"}
    others = [one for one, node in zip(hashes, model.graph.nodes, strict=True) if node.op != "Constant"]
    return hashlib.sha256("".join(sorted([*constants, *others])).encode()).hexdigest()


def _text(results: dict[str, Result]) -> str:
    rows = ",\n".join(f"{json.dumps(name)}: {json.dumps(results[name])}" for name in sorted(results))
    return f"{{\n{rows}\n}}\n"


if __name__ == "__main__":
    sys.exit(main())
