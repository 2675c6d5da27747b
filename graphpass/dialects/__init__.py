"""ONNX and OpenVINO: models, graph builders, rewriters, files."""
