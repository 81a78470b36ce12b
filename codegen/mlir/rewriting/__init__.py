"""Rewrite the function of one layer: other layouts, other operands, a chain around its root."""
