"""Convolutions and matrix products on vector registers."""
