"""Find model-local functions."""

from __future__ import annotations

import onnx

#: Domains whose operators have kernels in runtimes: functions of these domains are fallbacks.
_KNOWN = frozenset({"", "ai.onnx", "com.microsoft"})


def own_functions(proto: onnx.ModelProto) -> list[tuple[str, str]]:
    """Return domain and name of local functions that runtimes have no kernels for."""
    return [(function.domain, function.name) for function in proto.functions if function.domain not in _KNOWN]
