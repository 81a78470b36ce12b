"""Passes over a network's module, one per file: weights folded, layers formed, fused and split."""
