"""Split a dynamic model into a pair of static models for prefill and decode."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from graphpass.engine.passes import Pass
from graphpass.engine.split import PHASES, Split
from graphpass.io import Weights, Written
from graphpass.ir.model import Model
from graphpass.ir.types import Dialect

#: Name of the temporary model from which both models are created.
_BASE = "model"

#: Minimum bytes of weights in an ONNX file that are moved to a shared data file.
_WORTH_SHARING = 1 << 16


def preparation(model: Model, dialect: Dialect, split: Split) -> tuple[Pass[Any], ...]:
    """Return the passes that prepare a model for static shapes.

    After them, attention reads only positions that its mask includes.

    Args:
        model: The dynamic model.
        dialect: Dialect of the static models.
        split: Sizes of the static models; the passes for ONNX depend on its capacity.
    """
    from graphpass.analysis.caches.inventory import analyze_caches
    from graphpass.engine.pipeline import parse_target
    from graphpass.engine.registry import get_pass, get_target

    inventory = analyze_caches(model)
    if dialect == "onnx":
        return parse_target(f"qnn{{precision=f32,capacity={split.capacity}}}").pipeline(model)
    usual = get_target("cpu").pipeline(model)
    end = next(index for index, step in enumerate(usual) if step.name == "fuse-attention")
    extended = [step.name for step in usual if step.name == "extend-mask-to-past"]
    names = ["expose-position-ids"] if inventory.kind != "linear" else []
    before, after = (
        tuple(get_pass(name)() for name in some)
        for some in (
            ["make-stateless"] if inventory.stateful else [],
            ["densify-experts", *extended, *names, "window-from-positions"],
        )
    )
    return (*before, *usual[: end + 1], *after)


def phases_of(split: Split) -> dict[str, tuple[Pass[Any], ...]]:
    """Return the passes that create each of the two models, by name."""
    from graphpass.engine.pipeline import parse
    from graphpass.engine.registry import get_pass

    static: Any = get_pass("make-static")
    sizes = (split.chunk, split.prompt), (1, split.capacity)
    after = parse(split.after) if split.after else ()
    return {
        name: (static(length=length, past=past), *after) for name, (length, past) in zip(PHASES, sizes, strict=True)
    }


def find_pair(folder: Path) -> tuple[Path, Path] | None:
    """Return the prefill and the decode model in a folder; ``None`` if one is missing."""
    for suffix in (".onnx", ".xml"):
        prefill, decode = (folder / f"{name}{suffix}" for name in PHASES)
        if prefill.is_file() and decode.is_file():
            return prefill, decode
    return None


def stage_split(
    prepared: Model, split: Split, folder: Path, weights: Weights = "auto"
) -> tuple[dict[str, Model], Written]:
    """Write both models into a staged folder, with one file of weights.

    Each ``.xml`` file has a ``.bin`` file of the same name, as ``read_model`` expects; both are hard links to one file.
    ONNX models refer to one data file.

    Args:
        prepared: The model to split.
        split: The sizes of both models.
        folder: A folder of `graphpass.storage.staging.staging`.
        weights: Storage of the input's weights; see `graphpass.io.stage_model`.

    Returns:
        The written models, ``"prefill"`` and ``"decode"``, and how the input's weights were stored.

    Raises:
        PassFailedError, UnsupportedError: As the pass `make-static`.
        WriteError: As `stage_model`.
    """
    from graphpass.engine.manager import PassManager
    from graphpass.io import Written, load, stage_model

    suffix = ".onnx" if prepared.dialect == "onnx" else ".xml"
    base = folder / f"{_BASE}{suffix}"
    first = stage_model(prepared, folder, base.name, _limit(prepared), weights)
    appended = first.appended
    models = {}
    for name, steps in phases_of(split).items():
        # Load the base again for each model: appended weights change the file that the previous load refers to.
        model = PassManager(steps).run(load(base)).model
        done = stage_model(model, folder, f"{name}{suffix}", weights="share" if model.weight_files else "auto")
        appended += done.appended
        models[name] = load(folder / f"{name}{suffix}")
    base.unlink()
    if suffix == ".xml":
        base.with_suffix(".bin").unlink()
    return models, Written(first.shared, appended)


def _limit(model: Model) -> int | None:
    """Return the size above which an ONNX model's weights move to a data file."""
    if model.dialect != "onnx":
        return None
    from graphpass.dialects.onnx.model import OnnxModel
    from graphpass.dialects.onnx.tensors import SMALL, tensors

    assert isinstance(model, OnnxModel)
    # Small tensors stay in the graph file, whatever their number.
    sizes = (len(tensor.raw_data) for tensor in tensors(model.proto))
    stored = sum(size for size in sizes if size > SMALL)
    return model.proto.ByteSize() - 1 if stored >= _WORTH_SHARING else None
