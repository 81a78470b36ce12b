"""Whole networks: built, run beside ONNX Runtime, timed, selected again, and published."""
