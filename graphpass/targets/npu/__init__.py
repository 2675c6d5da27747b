"""OpenVINO's NPU plugin with NPUW."""
