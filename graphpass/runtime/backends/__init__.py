"""Sessions over each runtime: OpenVINO and ONNX Runtime, stateful and stateless."""
