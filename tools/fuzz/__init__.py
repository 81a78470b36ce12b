"""Differential fuzzing: compare random models under random plans with ONNX Runtime."""
