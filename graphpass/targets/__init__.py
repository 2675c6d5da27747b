"""What a runtime will do with a graph, by its own rules, and whether trying it out says the same.

>>> from graphpass.targets import check_model
>>> report = check_model(model, "cpu")    # doctest: +SKIP
>>> for finding in report.findings:       # doctest: +SKIP
...     print(finding.layer, finding.name, finding.verdict, finding.reason)
"""

from __future__ import annotations

from graphpass.targets.check import TARGETS, check_model
from graphpass.targets.finding import Confirmation, Finding, Report

__all__ = ["TARGETS", "Confirmation", "Finding", "Report", "check_model"]
