"""Operators of older versions and of ONNX Runtime's own sets, in terms of standard ones."""
