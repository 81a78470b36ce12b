"""Kernels written as MLIR from Python: loops, vectors and memory, compiled by IREE into the same module."""
