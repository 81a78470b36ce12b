"""Weights in blocks of few bits: products by them beside ONNX Runtime's."""
