"""SwiftShader, as Chromium ships it."""

from graphpass.runtime.devices import software
from graphpass.runtime.devices.software import software_vulkan


def test_variables_select_the_first_installed_driver(tmp_path, monkeypatch):
    monkeypatch.setattr(software, "_FOLDERS", (tmp_path / "none", tmp_path / "chromium"))
    monkeypatch.setenv("LD_LIBRARY_PATH", "/mine")
    assert software_vulkan() is None
    (tmp_path / "chromium").mkdir()
    driver = tmp_path / "chromium" / "vk_swiftshader_icd.json"
    driver.touch()
    assert software_vulkan() == {
        "LD_LIBRARY_PATH": f"{tmp_path / 'chromium'}:/mine",
        "VK_ICD_FILENAMES": str(driver),
        "VK_DRIVER_FILES": str(driver),
        "ORT_WEBGPU_EP_ALLOW_SOFTWARE_ADAPTER": "1",
    }
    monkeypatch.delenv("LD_LIBRARY_PATH")
    assert software_vulkan()["LD_LIBRARY_PATH"] == str(tmp_path / "chromium")
