"""Checks of kernels for GPUs of NVIDIA without such a GPU: an interpreter of their MLIR, and NVIDIA's assembler."""
