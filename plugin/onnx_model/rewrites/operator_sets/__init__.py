"""Rewrites of older operator versions and of ONNX Runtime's own operators to current standard operators."""
