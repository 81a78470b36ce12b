"""Profiling whole networks: building, checking against ONNX Runtime, timing, selecting again, and publishing."""
