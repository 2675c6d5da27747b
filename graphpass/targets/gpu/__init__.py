"""OpenVINO's GPU plugin."""
