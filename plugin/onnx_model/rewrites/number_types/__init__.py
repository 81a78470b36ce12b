"""Rewrites of quantised and integer operators, and of types that IREE computes otherwise."""
