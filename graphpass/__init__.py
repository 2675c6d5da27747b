"""Rewrite exported LLM graphs into a runtime's fastest form, and prove them unchanged.

>>> import graphpass
>>> model = graphpass.load("llama/onnx")                              # doctest: +SKIP
>>> inventory = graphpass.analyze_caches(model)                       # doctest: +SKIP
>>> passes = graphpass.parse("to-openvino,fuse-attention,make-stateful")
>>> result = graphpass.PassManager(passes).run(model)                 # doctest: +SKIP
>>> graphpass.save(result.model, "out/openvino_model.xml")            # doctest: +SKIP
"""

from importlib import import_module

TYPE_CHECKING = False  # importing typing takes longer than the rest of this module
if TYPE_CHECKING:
    from graphpass.analysis.caches.inventory import analyze_caches as analyze_caches
    from graphpass.api.check import check as check
    from graphpass.api.convert import convert as convert
    from graphpass.api.diff import diff as diff
    from graphpass.api.inspect import inspect as inspect
    from graphpass.api.reduce import bundle as bundle, reduce as reduce, replay as replay
    from graphpass.api.run_matrix import Matrix as Matrix, run_matrix as run_matrix
    from graphpass.api.split import split as split
    from graphpass.api.text import text as text
    from graphpass.engine.instrumentation import Instrumentation as Instrumentation
    from graphpass.engine.manager import (
        PassManager as PassManager,
        PassRecord as PassRecord,
        PipelineResult as PipelineResult,
    )
    from graphpass.engine.passes import (
        Condition as Condition,
        Done as Done,
        Pass as Pass,
        PassResult as PassResult,
        Skipped as Skipped,
    )
    from graphpass.engine.pipeline import (
        format_passes as format_passes,
        load_toml as load_toml,
        parse as parse,
        parse_toml as parse_toml,
    )
    from graphpass.engine.registry import (
        get_pass as get_pass,
        get_target as get_target,
        pass_names as pass_names,
        register as register,
        target_names as target_names,
    )
    from graphpass.errors import (
        GraphpassError as GraphpassError,
        PassFailedError as PassFailedError,
        PreconditionError as PreconditionError,
        ReadError as ReadError,
        UnsupportedError as UnsupportedError,
        UsageError as UsageError,
        VerificationError as VerificationError,
        WriteError as WriteError,
    )
    from graphpass.io import load as load, save as save
    from graphpass.ir.cache import (
        AttentionBlock as AttentionBlock,
        Axes as Axes,
        Cache as Cache,
        Inventory as Inventory,
    )
    from graphpass.ir.model import Model as Model
    from graphpass.ir.types import Port as Port
    from graphpass.jobs.job import Proof as Proof
    from graphpass.jobs.split import SplitOutcome as SplitOutcome
    from graphpass.reports.contract import Check as Check
    from graphpass.reports.difference import Diff as Diff
    from graphpass.reports.inventory import Inspection as Inspection
    from graphpass.reports.outcome import Outcome as Outcome
    from graphpass.verify.comparison import Comparison as Comparison
    from graphpass.verify.models import verify as verify

#: Names by module, each loaded at its first use: `graphpass --help` needs none.
_NAMES = {
    "graphpass.analysis.caches.inventory": "analyze_caches",
    "graphpass.api.check": "check",
    "graphpass.api.convert": "convert",
    "graphpass.api.diff": "diff",
    "graphpass.api.inspect": "inspect",
    "graphpass.api.reduce": "bundle reduce replay",
    "graphpass.api.run_matrix": "Matrix run_matrix",
    "graphpass.api.split": "split",
    "graphpass.api.text": "text",
    "graphpass.engine.instrumentation": "Instrumentation",
    "graphpass.engine.manager": "PassManager PassRecord PipelineResult",
    "graphpass.engine.passes": "Condition Done Pass PassResult Skipped",
    "graphpass.engine.pipeline": "format_passes load_toml parse parse_toml",
    "graphpass.engine.registry": "get_pass get_target pass_names register target_names",
    "graphpass.errors": "GraphpassError PassFailedError PreconditionError ReadError UnsupportedError UsageError"
    " VerificationError WriteError",
    "graphpass.io": "load save",
    "graphpass.ir.cache": "AttentionBlock Axes Cache Inventory",
    "graphpass.ir.model": "Model",
    "graphpass.ir.types": "Port",
    "graphpass.jobs.job": "Proof",
    "graphpass.jobs.split": "SplitOutcome",
    "graphpass.reports.contract": "Check",
    "graphpass.reports.difference": "Diff",
    "graphpass.reports.inventory": "Inspection",
    "graphpass.reports.outcome": "Outcome",
    "graphpass.verify.comparison": "Comparison",
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = [*_MODULES, "verify"]


def _load(name: str) -> object:
    if name == "verify":  # a package that can be called
        return import_module("graphpass.verify")
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)


if not TYPE_CHECKING:  # else type checkers would accept any name
    __getattr__ = _load
