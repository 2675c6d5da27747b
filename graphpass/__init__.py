"""Rewrite exported LLM graphs into a runtime's fastest form, and prove them unchanged.

>>> import graphpass
>>> model = graphpass.load("llama/onnx")                              # doctest: +SKIP
>>> inventory = graphpass.analyze_caches(model)                       # doctest: +SKIP
>>> passes = graphpass.parse("to-openvino,fuse-attention,make-stateful")
>>> result = graphpass.PassManager(passes).run(model)                 # doctest: +SKIP
>>> graphpass.save(result.model, "out/openvino_model.xml")            # doctest: +SKIP
"""

from importlib import import_module

TYPE_CHECKING = False  # as of typing, which takes longer to import than all else here
if TYPE_CHECKING:
    from graphpass.analysis.caches.inventory import analyze_caches as analyze_caches
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

#: Names by module, each loaded at its first use: `graphpass --help` needs none.
_NAMES = {
    "graphpass.analysis.caches.inventory": "analyze_caches",
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
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = list(_MODULES)


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
