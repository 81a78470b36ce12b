"""Layers as single kernels: operands in memory, and what routines that write kernels have in common."""
