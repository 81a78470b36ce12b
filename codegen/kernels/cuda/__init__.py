"""Kernels for GPUs of NVIDIA: blocks of threads, shared memory, and instructions that multiply matrices."""
