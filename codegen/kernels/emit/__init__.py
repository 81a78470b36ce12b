"""Emitting a kernel's MLIR: arithmetic, vectors, control flow, and the executable around it."""
