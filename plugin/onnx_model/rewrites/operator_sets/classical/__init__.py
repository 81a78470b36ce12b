"""Operators of classical machine learning (ai.onnx.ml) on tensors of numbers, as programs of standard operators."""
