"""Packs the caches of models, and unpacks them again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.engine.passes import Skipped
from support.pipelines import run_passes

if TYPE_CHECKING:
    from graphpass.ir.cache import CacheKind
    from graphpass.ir.model import Model


def ports(model: Model) -> list[tuple[str, str]]:
    """Inputs and outputs with their shapes; OpenVINO appends those that a pass makes."""
    return sorted([(port.name, str(port.shape)) for port in (*model.inputs, *model.outputs)])


def pack_and_unpack(model: Model, kind: CacheKind) -> tuple[Model, Model]:
    """``model`` with each two caches of this kind in one, and what unpacking that gives: what it was before."""
    before = analyze_caches(model).of_kind(kind)
    packed, result = run_passes(model, f"pack{{only={kind}}}")
    packed.validate()
    after = analyze_caches(packed).of_kind(kind)
    assert result.statistics == {"caches packed": len(before), "caches made": len(after)}
    assert 2 * len(after) == len(before)
    back, _ = run_passes(packed, f"unpack{{only={kind}}}")
    back.validate()
    assert ports(back) == ports(model)
    assert _described(back, kind) == _described(model, kind)
    assert isinstance(run_passes(back, f"unpack{{only={kind}}}")[1], Skipped)
    assert isinstance(run_passes(packed, f"pack{{only={kind}}}")[1], Skipped)
    return packed, back


def _described(model: Model, kind: CacheKind) -> list[tuple[object, ...]]:
    caches = analyze_caches(model).of_kind(kind)
    return [(cache.name, cache.role, cache.layer, cache.axes, cache.shape) for cache in caches]
