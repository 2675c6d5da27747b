"""Find SwiftShader, the software Vulkan that Chromium ships."""

from __future__ import annotations

import os
from pathlib import Path

#: Folders of Chromium with its Vulkan loader and driver, as Debian and Chrome install them.
_FOLDERS = (Path("/usr/lib/chromium"), Path("/usr/lib/chromium-browser"), Path("/opt/google/chrome"))
_DRIVER = "vk_swiftshader_icd.json"


def software_vulkan() -> dict[str, str] | None:
    """Return the variables that select SwiftShader; ``None`` if it is not installed."""
    folder = next((each for each in _FOLDERS if (each / _DRIVER).exists()), None)
    if folder is None:
        return None
    libraries = [str(folder), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
    driver = str(folder / _DRIVER)
    return {
        "LD_LIBRARY_PATH": os.pathsep.join(libraries),
        "VK_ICD_FILENAMES": driver,
        "VK_DRIVER_FILES": driver,
        "ORT_WEBGPU_EP_ALLOW_SOFTWARE_ADAPTER": "1",
    }
