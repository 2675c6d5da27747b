"""All passes of the library, by room.

The pass ``make-stateful`` of room ``caches`` is the class with this name in ``caches/make_stateful.py``. This module
does not import the passes, so that listing names is cheap.
"""

from __future__ import annotations

_ROOMS = {
    "attention": (
        "add-tree-mask",
        "compute-cross-caches",
        "count-new-tokens",
        "count-positions",
        "expose-alibi",
        "expose-position-ids",
        "fill-cross-caches",
        "fuse-attention",
        "fuse-causal-conv",
        "fuse-gated-delta-net",
        "fuse-group-query-attention",
        "fuse-linear-attention",
        "fuse-multi-head-attention",
        "fuse-selective-ssm",
        "join-projections",
        "keep-cross-caches",
        "lower-attention",
        "rechunk-linear-attention",
        "regroup-heads",
        "separate-past",
        "tabulate-angles",
    ),
    "caches": (
        "copy-shared-caches",
        "dequantize-caches",
        "expand-latents",
        "grow-caches",
        "insert-reorder",
        "insert-snapshot",
        "make-stateful",
        "make-stateless",
        "pack",
        "quantize-caches",
        "rename-caches",
        "standardize-layout",
        "static-cache",
        "unpack",
        "widen-conv-window",
    ),
    "convert": (
        "change-precision",
        "drop-constant-outputs",
        "fix-input",
        "inline-functions",
        "select-branch",
        "to-openvino",
    ),
    "devices": (
        "flatten-rows",
        "fuse-functions",
        "fuse-quantized-weights",
        "fuse-skip-norms",
        "lower-boolean-gathers",
        "lower-boolean-masks",
        "lower-einsum",
        "lower-for-htp",
        "lower-variadic-split",
        "negate-quantized-ports",
        "quantize-weights",
        "read-length-from-keys",
        "rename-variables",
        "reshape-results",
        "set-runtime-options",
        "split-value-transposes",
    ),
    "experts": ("batch-experts", "densify-experts", "fuse-experts"),
    "lower": ("lower-operators",),
    "masks": (
        "add-attention-mask",
        "drop-row-guards",
        "expose-window",
        "extend-mask-to-past",
        "mask-padding",
        "window-from-positions",
        "zero-padding",
    ),
    "shapes": (
        "canonicalize-shapes",
        "expose-hidden-states",
        "last-logits",
        "make-static",
        "reshape-by-constants",
        "simplify-shapes",
        "unroll-loops",
    ),
}

#: Module of each pass, by name.
PASSES = {name: f"graphpass.passes.{room}.{name.replace('-', '_')}" for room, names in _ROOMS.items() for name in names}
