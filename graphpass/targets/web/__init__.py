"""The browser: transformers.js on ONNX Runtime Web."""
