"""Routines with our own kernels for GPUs of NVIDIA."""
