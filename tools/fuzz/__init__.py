"""Differential fuzzing: random models, computed by random plans, beside ONNX Runtime."""
