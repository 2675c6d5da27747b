"""The one table of operators."""

from __future__ import annotations

from graphpass.analysis.symbolic import open_sizes, operators
from graphpass.analysis.symbolic.elements import OperatorTable

TABLE = OperatorTable(operators.RULES, open_sizes.RULES)
