"""The target `web`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.analysis.caches.packed import is_packed
from graphpass.engine.conditions import ONNX
from graphpass.engine.findings import Finding, Observation
from graphpass.engine.manager import PassManager
from graphpass.engine.passes import Pass
from graphpass.engine.pipeline import parse
from graphpass.engine.target import Target
from graphpass.errors import UnsupportedError
from graphpass.ir.cache import Cache, Inventory
from graphpass.ir.inputs import narrow_inputs
from graphpass.ir.model import Model
from graphpass.targets.ort.target import ORT, lower_packed
from graphpass.targets.rules import later_steps, require_onnx, upgrade_opset
from graphpass.targets.web import rules
from graphpass.targets.web.folder import SUFFIXES, DataType, config_file, data_type_of

Device = Literal["webgpu", "wasm"]


@dataclass(frozen=True)
class Web(Target):
    """transformers.js 4 in browsers and Node, as a folder that it loads.

    The folder has ``onnx/model.onnx`` with its weights in files below 2 GB, ``config.json`` with
    ``transformers.js_config``, and the tokenizer. Attention and caches are fused as for `ort`, and caches get the names
    that transformers.js feeds. If transformers.js does not support the type of the model, or expects other caches for
    it, ``config.json`` names a type with these caches. An input sets the number of tokens whose logits are computed.

    Options:
        device: The execution provider: ``webgpu``, or ``wasm`` on the CPU, which also runs models for ``webgpu``.
        dtype: Types, which are part of the file name. ``fp32`` and ``fp16`` change hidden states, weights and caches;
            ``q4`` and ``q4f16`` also quantize weights to 4 bits, see `quantize-weights`. By default types are
            unchanged.
        context: Number of positions in rotary tables, see `ort`.
    """

    name = "web"
    description = "transformers.js in browsers and Node: the folder that it loads, for WebGPU or WebAssembly"
    dialect = "onnx"
    output_file = "onnx/model.onnx"
    contract = (ONNX,)
    shards_weights = True

    device: Device = "webgpu"
    dtype: DataType | None = None
    context: int | None = None

    @property
    def runtime(self) -> ORT:
        """Return the target `ort` for this device; WebAssembly has the CPU provider's kernels."""
        device: Literal["cpu", "webgpu"] = "cpu" if self.device == "wasm" else "webgpu"
        return ORT(device=device, precision="f32", context=self.context, padding="any")

    def pipeline(self, model: Model) -> tuple[Pass[Any], ...]:
        """Return the passes, as `Target.pipeline`.

        Raises:
            ReadError: GP116, the configuration beside the model is not a JSON object.
            UnsupportedError: GP366, the model is OpenVINO IR; GP399, transformers.js does not run the model.
        """
        require_onnx(model, self.name)
        if (later := later_steps(model)) is not None:
            return (*parse("select-branch"), *self.pipeline(later))
        if first := self._separated(model):
            passes = parse(",".join(first))
            return (*passes, *self.pipeline(PassManager(passes).run(model).model))
        inventory = analyze_caches(model)
        if (reason := rules.why_not(model, inventory)) is not None:
            raise UnsupportedError("GP399", f"transformers.js does not run this model: {reason[0]}", reason[1])
        names = rules.caches_for(model, inventory).options
        # First, so that rotary tables of fused attention are computed in f32.
        first = ["change-precision{to=f32}"] if self.dtype in {"fp32", "q4", "q4f16"} else []
        first += ["standardize-layout"] if any(map(_counts_elsewhere, inventory.of_kind("kv"))) else []
        last = ["fix-input{input=logits_to_keep}"] if "logits_to_keep" in model.graph.parameters else []
        last += ["quantize-weights"] if self.dtype in {"q4", "q4f16"} else []
        last += ["change-precision{to=f16}"] if self.dtype in {"fp16", "q4f16"} else []
        last += ["last-logits{count=input}", f"rename-caches{{{','.join(names)}}}" if names else "rename-caches"]
        return (*parse(",".join(first)), *self.runtime.pipeline(model), *parse(",".join(last)))

    @staticmethod
    def _separated(model: Model) -> list[str]:
        """Return the passes that declare inputs, and split caches, as transformers.js feeds them."""
        lowered = lower_packed(model)
        steps = [*upgrade_opset(model), *lowered] if lowered else []
        steps += ["unpack"] if not lowered and is_packed(model, analyze_caches(model)) else []
        return [*steps, *(["widen-inputs"] if narrow_inputs(model.graph) else [])]

    def predict(self, model: Model, inventory: Inventory) -> tuple[Finding, ...]:
        return (*rules.predict(model, inventory), *self.runtime.predict(model, inventory))

    def observe(self, model: Model) -> Observation | str:
        from graphpass.dialects.onnx.model import OnnxModel
        from graphpass.runtime.devices.software import software_vulkan
        from graphpass.runtime.devices.webgpu import for_adapter
        from graphpass.targets.web.trial import observe

        assert isinstance(model, OnnxModel)
        ran, difference = for_adapter(model, is_software=self.device == "webgpu" and software_vulkan() is not None)
        # transformers.js refuses types that the adapter does not support, by the file name.
        file = _file_of(data_type_of(ran)) if difference else self.file_for(model)
        return observe(ran, config_file(ran, model.path, self.device, file), file, self.device, difference)

    def file_for(self, model: Model) -> str:
        return _file_of(self.dtype or data_type_of(model))

    def files(self, model: Model, source: Path | None) -> dict[str, str]:
        """See `Target.files`.

        Returns:
            The text of ``config.json``.

        Raises:
            ReadError: GP116, the configuration beside the model is not a JSON object.
        """
        return {"config.json": config_file(model, source, self.device, self.file_for(model))}


def _file_of(dtype: DataType) -> str:
    return f"onnx/model{SUFFIXES[dtype]}.onnx"


def _counts_elsewhere(cache: Cache) -> bool:
    """Return whether positions are not on the second to last axis, where transformers.js counts them."""
    return cache.shape is not None and cache.axes.sequence not in {None, len(cache.shape) - 2}
