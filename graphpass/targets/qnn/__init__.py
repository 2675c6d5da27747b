"""Qualcomm's HTP by ONNX Runtime's QNN provider."""
