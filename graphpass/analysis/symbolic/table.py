"""Rules for sizes and elements of outputs, by the neutral operator names of `Graph`.

Sources: the operator specifications of ONNX and of OpenVINO's opset16.
"""

from __future__ import annotations

from graphpass.analysis.symbolic import open_sizes
from graphpass.analysis.symbolic.elements import OperatorTable
from graphpass.analysis.symbolic.operators import elementwise, indexing, layout, reductions, sources
from graphpass.analysis.symbolic.rotary import rotary

TABLE = OperatorTable(
    elementwise.RULES | indexing.RULES | layout.RULES | reductions.RULES | sources.RULES | {"RotaryEmbedding": rotary},
    open_sizes.RULES,
)
