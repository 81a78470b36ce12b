"""Kernels of products by weights in blocks of small integers, which are decoded in registers."""
