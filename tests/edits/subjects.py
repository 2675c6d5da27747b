"""The decoder fixtures in every form that a session opens, each with what its edits are held against."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
from edits.machine import Subject
from edits.oracle import Recomputation
from support.loaded import converted, exported, run_once
from support.models import fixtures

import graphpass
from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.runtime import DecodeSession, open_session
from graphpass.verify.readings import misreads_left_padding

#: Forms as exported, and stateful IR that graphpass makes of ONNX.
VARIANTS = ("onnx", "onnx-genai", "onnx-raw", "ov-stateless", "ov-stateful", "converted")

#: They decode what an encoder gives them, which sessions do not feed.
_WITH_ENCODER = ("t5", "whisper")

#: Its one export computes prompts of more than a chunk (8 tokens) inexactly, and OpenVINO's CPU plugin (2026.4.1) its
#: batches wrong, by a ReduceSum with a fused Add: nothing recomputes what edits leave.
#: test_extend_mask_to_past.py edits it.
_INEXACT = ("zamba2",)

#: ONNX Runtime's GroupQueryAttention refuses heads of 24.
_REFUSED = {("llama_12l", "onnx-genai")}


#: These two exports compute a prompt of several tokens in another way than single steps, and inexactly.
_STEPS_ALONE = {("mamba", "ov-stateless"), ("mamba", "ov-stateful")}

#: NPUW on the CPU, with room for what the edits feed.
NPUW = {"NPUW_DEVICES": "CPU", "NPUW_LLM_MAX_PROMPT_LEN": "64", "NPUW_LLM_MIN_RESPONSE_LEN": "64"}


def forms() -> list[tuple[str, str]]:
    """All pairs of model and variant that there are."""
    names = sorted(folder.name for folder in fixtures().iterdir() if folder.is_dir())
    return [
        (name, variant)
        for name in names
        if name not in (*_WITH_ENCODER, *_INEXACT)
        for variant in VARIANTS
        if (name, variant) not in _REFUSED and _folder(name, variant).is_dir()
    ]


def model(name: str, variant: str, passes: str = "") -> graphpass.Model:
    """One form of a model, after some passes; ``converted`` is what graphpass makes of ONNX for the CPU."""
    if passes:
        return run_once(model(name, variant), passes).model
    return converted(exported(f"{name}/onnx")).model if variant == "converted" else exported(f"{name}/{variant}")


@functools.cache
def subject(name: str, variant: str, passes: str = "") -> Subject:
    """A session of its own for each form; all forms of a model share one recomputation."""
    opened = model(name, variant, passes)
    session = open_session(opened)
    kind = opened.analysis(analyze_caches).kind
    return Subject(
        session,
        recomputation(name),
        kind,
        "add-tree-mask" in passes,
        session.takes_mask and not misreads_left_padding(opened) and not _gives_nan(session),
        longest_prompt=1 if (name, variant) in _STEPS_ALONE else 12,
        # Found for granitemoehybrid and mamba: up to 1.1e-4.
        unedited=None if kind == "kv" else functools.cache(lambda: open_session(opened)),
    )


@functools.cache
def on_device(name: str, variant: str, device: str) -> Subject:
    """A session on a GPU or NPU, of a model that is made for it."""
    source = model(name, variant)
    made = graphpass.PassManager(graphpass.get_target(device.lower()).pipeline(source)).run(source).model
    properties = NPUW if device == "NPU" else None
    opened = functools.partial(open_session, made, device=device, properties=properties)
    kind = made.analysis(analyze_caches).kind
    return Subject(
        opened(),
        recomputation(name),
        kind,
        longest_prompt=1 if (name, variant) in _STEPS_ALONE else 12,
        most_rows=1 if device == "NPU" else 3,
        # NPUW keeps caches in f16, states, too, which add up (granitemoehybrid: 3.4e-2); GPUs have coarser functions.
        tolerance=1e-2 if device == "GPU" else 2e-2 if kind == "kv" else 5e-2,
        # Found for gpt2 and granitemoehybrid: up to 2.3e-2; of qwen3_next a GPU chooses another expert at a tie.
        unedited=functools.cache(opened),
    )


def _gives_nan(session: DecodeSession) -> bool:
    """Whether rows of padding, which see no key at all, spoil what stands behind them, as in some exports."""
    return bool(np.isnan(session.prefill([[0, 5], [3, 4]], [[0, 1], [1, 1]])[:, -1]).any())


def trees(variant: str) -> str:
    """The passes behind which a step holds a tree; windows in ONNX cannot have them."""
    return "add-tree-mask" if variant.startswith("onnx") else "window-from-positions,add-tree-mask"


@functools.cache
def recomputation(name: str) -> Recomputation:
    """By a form that runs without states, or one that takes one token at a time, where there is one."""
    known = forms()
    variant = next(
        variant for variant in ("onnx-raw", "onnx", "ov-stateless", "ov-stateful") if (name, variant) in known
    )
    return Recomputation(open_session(exported(f"{name}/{variant}")))


def _folder(name: str, variant: str) -> Path:
    return fixtures() / name / ("onnx" if variant == "converted" else variant)
