"""Kernels of convolutions whose result has a single channel, or a few."""
