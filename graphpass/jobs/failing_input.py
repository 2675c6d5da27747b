"""Report an invalid input of a conversion instead of the failure that it causes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from graphpass.errors import UnsupportedError

if TYPE_CHECKING:
    from graphpass.ir.model import Model

#: Errors of a frontend or a runtime whose cause may be the input.
_EFFECTS = frozenset({"GP312", "GP321", "GP322"})


@contextlib.contextmanager
def name_failing_input(inputs: Iterable[Model]) -> Iterator[None]:
    """Replace a failure inside the ``with`` block by the error of an invalid input.

    Args:
        inputs: The models that are converted; those in OpenVINO IR are not tried.

    Raises:
        UnsupportedError: GP351, ONNX Runtime cannot compile or run one of them.
    """
    try:
        yield
    except UnsupportedError as error:
        # Conversions that succeed, and those for OpenVINO, do not import ONNX Runtime for this.
        from graphpass.targets.ort.trial import observe
        from graphpass.verify.session_forms import in_session_form

        for model in inputs if _may_follow(error) else ():
            if model.dialect == "onnx" and (reason := observe(in_session_form(model)).refused) is not None:
                hint = "export the model again, or convert the file from before the tool that wrote this one"
                raise UnsupportedError("GP351", f"the input {model.path} is at fault: {reason}", hint) from error
        raise


def _may_follow(error: UnsupportedError) -> bool:
    """Return whether an error may be an effect of the input: no rule predicted it."""
    from graphpass.reports.contract import BrokenContractError

    if isinstance(error, BrokenContractError):
        return all(finding.holds for finding in error.report.findings)
    return error.id in _EFFECTS
