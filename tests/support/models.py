"""The fixture models: where they lie, and what PyTorch says they generate."""

from __future__ import annotations

import functools
import importlib.util
import json
import re
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).resolve().parents[2]


@functools.cache
def fixtures() -> Path:
    """The unpacked fixture models."""
    unpacked: Path = _archive().unpack()
    return unpacked


@functools.cache
def hybrids() -> Path:
    """The unpacked models of ``hybrids.tar.xz``, which are not fixtures of all tests."""
    unpacked: Path = _archive().unpack(_ROOT / "build" / "hybrids", _ROOT / "fixtures" / "hybrids.tar.xz")
    return unpacked


@functools.cache
def steps() -> Path:
    """The unpacked models of ``steps.tar.xz``, each of one token at a time in ``ov-step``."""
    unpacked: Path = _archive().unpack(_ROOT / "build" / "steps", _ROOT / "fixtures" / "steps.tar.xz")
    return unpacked


def vision(name: str) -> Path:
    """The folder of a model of ``vision.tar.xz``: a language model, and those that embed text and images for it."""
    return _vision() / name / "ov-stateful"


def vision_onnx(name: str) -> Path:
    """The folder of an ONNX model of ``vision.tar.xz``: each of its models is in a folder of its own."""
    return _vision() / name / "mobius"


@functools.cache
def _vision() -> Path:
    unpacked: Path = _archive().unpack(_ROOT / "build" / "vision", _ROOT / "fixtures" / "vision.tar.xz")
    return unpacked


@functools.cache
def drafts(name: str) -> Path:
    """The folder of a model of ``drafts.tar.xz`` and its draft: ``drafts("eagle3")``."""
    unpacked: Path = _archive().unpack(_ROOT / "build" / "drafts", _ROOT / "fixtures" / "drafts.tar.xz")
    return unpacked / name


@functools.cache
def dynamo(name: str) -> Path:
    """The folder of a model of ``dynamo.tar.xz``: ``dynamo("mistral")``, with exports named after opsets in it."""
    unpacked: Path = _archive().unpack(_ROOT / "build" / "dynamo", _ROOT / "fixtures" / "dynamo.tar.xz")
    return unpacked / name


@functools.cache
def exporters(exporter: str, family: str) -> Path:
    """The folder of a model of ``exporters.tar.xz``: ``exporters("mobius", "llama")``."""
    unpacked: Path = _archive().unpack(_ROOT / "build" / "exporters", _ROOT / "fixtures" / "exporters.tar.xz")
    return unpacked / exporter / family


def _archive() -> Any:
    spec = importlib.util.spec_from_file_location("fixture_archive", _ROOT / "fixtures" / "archive.py")
    assert spec is not None
    assert spec.loader is not None
    archive = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(archive)
    return archive


def fixture_of(nodeid: str) -> str | None:
    """Return the first fixture that the parameters of a test name."""
    words = re.split(r"\W+", nodeid.partition("::")[2].partition("[")[2])
    return next((word for word in words if word and (fixtures() / word).is_dir()), None)


def export(model: str, variant: str) -> Path:
    """The folder of one export: ``export("llama", "onnx")``."""
    folder = fixtures() / model / variant
    assert folder.is_dir(), folder
    return folder


@functools.cache
def reference(model: str) -> dict[str, Any]:
    """``reference.json``: ``prompt_ids``, ``greedy_ids``, ``logits_last_prompt_pos_first8`` ..."""
    loaded: dict[str, Any] = json.loads((fixtures() / model / "reference.json").read_text())
    return loaded
