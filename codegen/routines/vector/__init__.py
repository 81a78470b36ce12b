"""Routines with our own kernels on vector registers."""
