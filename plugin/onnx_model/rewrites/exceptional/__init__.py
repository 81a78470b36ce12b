"""Rewrites of operators that IREE computes wrongly from zeros, infinities, NaN, negative or large values."""
