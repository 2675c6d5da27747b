"""OpenVINO's CPU plugin."""
