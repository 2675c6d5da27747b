"""Rewrite exported LLM graphs into a runtime's fastest form, and prove them unchanged.

>>> import graphpass
>>> model = graphpass.load("llama/onnx")                              # doctest: +SKIP
>>> inventory = graphpass.analyze_caches(model)                       # doctest: +SKIP
>>> passes = graphpass.parse("to-openvino,fuse-attention,make-stateful")
>>> result = graphpass.PassManager(passes).run(model)                 # doctest: +SKIP
>>> graphpass.save(result.model, "out/openvino_model.xml")            # doctest: +SKIP
"""

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.engine.instrumentation import Instrumentation
from graphpass.engine.manager import PassManager, PassRecord, PipelineResult
from graphpass.engine.passes import Condition, Done, Pass, PassResult, Skipped
from graphpass.engine.pipeline import format_passes, load_toml, parse, parse_toml
from graphpass.engine.registry import get_pass, get_target, pass_names, register, target_names
from graphpass.errors import (
    GraphpassError,
    PassFailedError,
    PreconditionError,
    ReadError,
    UnsupportedError,
    UsageError,
    VerificationError,
    WriteError,
)
from graphpass.io import load, save
from graphpass.ir.cache import AttentionBlock, Axes, Cache, Inventory
from graphpass.ir.model import Model
from graphpass.ir.types import Port

__all__ = [
    "AttentionBlock",
    "Axes",
    "Cache",
    "Condition",
    "Done",
    "GraphpassError",
    "Instrumentation",
    "Inventory",
    "Model",
    "Pass",
    "PassFailedError",
    "PassManager",
    "PassRecord",
    "PassResult",
    "PipelineResult",
    "Port",
    "PreconditionError",
    "ReadError",
    "Skipped",
    "UnsupportedError",
    "UsageError",
    "VerificationError",
    "WriteError",
    "analyze_caches",
    "format_passes",
    "get_pass",
    "get_target",
    "load",
    "load_toml",
    "parse",
    "parse_toml",
    "pass_names",
    "register",
    "save",
    "target_names",
]
