"""Rewrites of quantised and integer operators, and of element types for which IREE's results differ from ONNX's."""
