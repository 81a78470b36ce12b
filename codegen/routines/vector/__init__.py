"""Routines by kernels of our own on vector registers."""
