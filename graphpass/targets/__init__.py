"""Targets: pipelines, rules, trials and views of caches for each runtime.

>>> from graphpass.targets import check_model
>>> report = check_model(model, "cpu")    # doctest: +SKIP
>>> for finding in report.findings:       # doctest: +SKIP
...     print(finding.layer, finding.name, finding.verdict, finding.reason)
"""

from __future__ import annotations

from graphpass.targets.check import check_model

__all__ = ["check_model"]
