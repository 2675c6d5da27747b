"""List the adapters of each runtime, in separate processes because a driver may crash."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from graphpass.errors import UsageError
from graphpass.runtime.devices.apart import run_apart
from graphpass.runtime.devices.javascript import BROWSERS, find_javascript
from graphpass.runtime.devices.software import software_vulkan
from graphpass.runtime.devices.stand_in import ENVIRONMENT, entered, stand_in

#: Timeouts in seconds of a runtime, and of a program that prints its version.
_LIMIT, _VERSION_LIMIT = 120, 30


@dataclass(frozen=True, slots=True)
class Adapter:
    """A device that a runtime found.

    Attributes:
        name: The runtime's name for the device.
        is_software: Whether the device was found with software drivers only.
    """

    name: str
    is_software: bool = False


@dataclass(frozen=True, slots=True)
class Runtime:
    """A runtime on this machine.

    Attributes:
        name: Display name.
        version: Installed version; ``None`` if it is not installed.
        adapters: Devices that the runtime found.
        missing: The reason why the runtime cannot run, with a remedy; ``None`` if it can.
    """

    name: str
    version: str | None
    adapters: tuple[Adapter, ...] = ()
    missing: str | None = None


@dataclass(frozen=True, slots=True)
class _Probe:
    """Code that lists the adapters of a package.

    Attributes:
        name: Display name of the runtime.
        package: Distribution of the runtime.
        code: Python code that sets ``names`` to a list of names.
        install: The remedy if the package is not installed.
        driver: The remedy if there are no adapters.
    """

    name: str
    package: str
    code: str
    install: str
    driver: str


_PLUGIN = """
import onnxruntime, {module} as plugin
onnxruntime.register_execution_provider_library("{provider}", plugin.get_library_path())
found = [each for each in onnxruntime.get_ep_devices() if each.ep_name == "{provider}"]
names = [f"{{each.device.type.name}} {{each.device.vendor}}".strip() for each in found]
"""

_WEBGPU = _Probe(
    "ONNX Runtime, WebGPU",
    "onnxruntime-ep-webgpu",
    _PLUGIN.format(module="onnxruntime_ep_webgpu", provider="WebGpuExecutionProvider"),
    "pip install 'graphpass[webgpu]'",
    "install a Vulkan driver, or chromium, which has SwiftShader, a driver in software",
)

_OPENVINO = """
import openvino
core = openvino.Core()
names = [f'{each}: {core.get_property(each, "FULL_DEVICE_NAME")}' for each in core.available_devices]
"""

#: NPUW is a part of the NPU plugin, and runs parts of models on other devices, including the CPU.
_NPUW = """
import openvino
core = openvino.Core()
names = [f"NPUW on the CPU, {one.description}" for one in core.get_versions("NPU").values()]
"""

_PROBES = (
    _Probe(
        "ONNX Runtime",
        "onnxruntime",
        "import onnxruntime\nnames = onnxruntime.get_available_providers()",
        "pip install onnxruntime",
        "reinstall onnxruntime",
    ),
    _WEBGPU,
    _Probe(
        "ONNX Runtime, Qualcomm QNN",
        "onnxruntime-qnn",
        _PLUGIN.format(module="onnxruntime_qnn", provider="QNNExecutionProvider"),
        "pip install 'graphpass[qnn]'",
        "install the driver of the NPU",
    ),
    _Probe("OpenVINO", "openvino", _OPENVINO, "pip install openvino", "install the driver of the device"),
    _Probe("OpenVINO, NPUW", "openvino", _NPUW, "pip install openvino", "reinstall openvino"),
)

_ANSWER = "\nimport json, sys\nwith open(sys.argv[1], 'w') as file:\n    json.dump(names, file)\n"


def find_runtimes() -> tuple[Runtime, ...]:
    """Return the runtimes that graphpass supports, installed or not."""
    node, chromium = _version_of("node"), _version_of(*BROWSERS)
    return (
        *(_found(probe) for probe in _PROBES),
        _gpu_on_cpu(),
        _transformers_js(),
        Runtime("Node", node, missing=None if node else "not found on PATH: install nodejs"),
        Runtime("Chromium", chromium, missing=None if chromium else "not found on PATH: install chromium"),
    )


def _version_of(*names: str) -> str | None:
    """Return the version that the first working program of these names prints, if any."""
    for path in filter(None, map(shutil.which, names)):
        try:
            done = subprocess.run(  # noqa: S603 - found on PATH
                [path, "--version"], capture_output=True, text=True, check=False, timeout=_VERSION_LIMIT
            )
        except subprocess.TimeoutExpired:
            continue
        if done.returncode == 0 and (words := done.stdout.strip()):
            return words.splitlines()[0]
    return None


def find_webgpu() -> Runtime:
    """Return ONNX Runtime's WebGPU provider on this machine."""
    return _found(_WEBGPU)


def _transformers_js() -> Runtime:
    javascript = find_javascript()
    name = "transformers.js"
    return Runtime(name, None, missing=javascript) if isinstance(javascript, str) else Runtime(name, javascript.version)


def _found(probe: _Probe) -> Runtime:
    try:
        installed = version(probe.package)
    except PackageNotFoundError:
        return Runtime(probe.name, None, missing=f"{probe.package} is not installed: {probe.install}")
    names, failure = _ask(probe.code, {})
    software = software_vulkan() if probe is _WEBGPU else None
    is_software = not names and software is not None
    if not names and software is not None:
        names, failure = _ask(probe.code, software)
    if names:
        return Runtime(probe.name, installed, tuple(Adapter(name, is_software) for name in names))
    return Runtime(probe.name, installed, missing=f"{failure or 'no adapter was found'}: {probe.driver}")


def _gpu_on_cpu() -> Runtime:
    """Return OpenVINO's GPU plugin in the environment that runs it on a CPU."""
    name, remedy = "OpenVINO, GPU on a CPU", f"set {ENVIRONMENT} to one, see docs/devices.md"
    try:
        folder = stand_in()
    except UsageError as error:
        return Runtime(name, None, missing=f"{error.message}: {error.hint}")
    if folder is None:
        return Runtime(name, None, missing=f"no environment with a GPU plugin: {remedy}")
    code = f"{_OPENVINO}names = [openvino.__version__] + [each for each in names if each.startswith('GPU')]"
    devices, failure = _ask(code, {}, entered(folder))
    installed, names = next(iter(devices), None), devices[1:]
    missing = None if names else f"{failure or 'no adapter was found'}: {remedy}"
    return Runtime(name, installed, tuple(Adapter(each, is_software=True) for each in names), missing)


def _ask(
    code: str, environment: Mapping[str, str], interpreter: Sequence[str] = (sys.executable,)
) -> tuple[list[str], str | None]:
    """Return the adapters that ``code`` lists, and the reason if it failed."""
    with tempfile.TemporaryDirectory() as scratch:
        answer = Path(scratch, "answer.json")
        command = [*interpreter, "-c", code + _ANSWER, str(answer)]
        if failure := run_apart(command, answer, _LIMIT, environment):
            return [], failure
        names: list[str] = json.loads(answer.read_text())
        return names, None
