"""Lowering ONNX Runtime's own operators to standard ones, and the reasons for refusing others."""
