"""Models that went through passes."""

from __future__ import annotations

from typing import Any

from graphpass.engine.manager import PassManager
from graphpass.engine.passes import Pass, PassResult
from graphpass.engine.pipeline import parse
from graphpass.ir.model import Model


def piped(model: Model, *passes: Pass[Any] | str) -> tuple[Any, PassResult]:
    """``model`` behind ``passes``, some perhaps as the text of a pipeline, and what the last of them says."""
    given = [one for each in passes for one in (parse(each) if isinstance(each, str) else (each,))]
    result = PassManager(given).run(model)
    return result.model, result.records[-1].result
