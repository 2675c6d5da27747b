"""ONNX and OpenVINO IR: models, graph builders, rewriters and files."""
