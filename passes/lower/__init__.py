"""Lowerings of operators of single runtimes to standard ONNX operators."""
