"""Kernels written as MLIR from Python: loops, vectors and memory, compiled by IREE into the same module.

``contraction`` is the loop nest of convolutions and matrix products, ``epilogue`` re-emits what follows them on
vectors, ``executable`` wraps a kernel so that a layer can dispatch it.
"""
