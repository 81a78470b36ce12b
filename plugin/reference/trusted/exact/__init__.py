"""Rewriting a copy of a model so that ONNX Runtime's CPU provider computes products of 8-bit integers exactly."""
