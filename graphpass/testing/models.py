"""Tiny models of families, and pipelines on models."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, Literal

from graphpass.dialects.text import parse_model
from graphpass.engine.manager import PassManager
from graphpass.engine.passes import Pass
from graphpass.engine.pipeline import parse as parse_pipeline
from graphpass.errors import UsageError
from graphpass.ir.model import Model
from graphpass.testing.families import FAMILIES, Family, text_of_family

_FORMS = {"onnx": "", "openvino": "to-openvino", "stateful": "to-openvino,make-stateful"}


def tiny_model(
    family: str | Family, form: Literal["onnx", "openvino", "stateful"] = "onnx", *, layers: int = 2
) -> Model:
    """Return a decoder with random but reproducible weights, in about 0.1 s.

    Inputs:

    - ``input_ids``, i64 ``[batch, length]``
    - ``attention_mask``, i64 ``[batch, total]``
    - ``position_ids``, i64 ``[batch, length]``, except for ALiBi
    - ``past.N.key``, ``past.N.value`` or ``past.N.conv`` of layer ``N``

    Outputs are ``logits`` and the presents, such as ``present.N.key``.

    Args:
        family: A name in `graphpass.testing.FAMILIES`, or a family.
        form: ONNX, OpenVINO IR, or OpenVINO IR with the caches as variables.
        layers: Number of layers.

    Raises:
        UsageError: GP274, the family does not exist.

    Examples:
        >>> from graphpass.testing import tiny_model
        >>> [port.name for port in tiny_model("llama", layers=1).outputs]
        ['logits', 'present.0.key', 'present.0.value']
    """
    if isinstance(family, str):
        if family not in FAMILIES:
            raise UsageError("GP274", f"there is no tiny model of {family}", f"families: {', '.join(FAMILIES)}")
        family = FAMILIES[family]
    return _made(family, form, layers).clone()


@functools.lru_cache(64)
def _made(family: Family, form: str, layers: int) -> Model:
    return run(parse_model(text_of_family(family, layers)), _FORMS[form])


def run(model: Model, passes: str | Sequence[Pass[Any]]) -> Model:
    """Return the result of a pipeline on a model.

    Args:
        model: The input, which is not modified.
        passes: The pipeline, as text or passes.

    Returns:
        The resulting model.

    Raises:
        GraphpassError: As `graphpass.PassManager.run`.

    Examples:
        >>> from graphpass.testing import run, tiny_model
        >>> run(tiny_model("llama"), "to-openvino").dialect
        'openvino'
    """
    sequence = parse_pipeline(passes) if isinstance(passes, str) else passes
    return PassManager(sequence).run(model).model
