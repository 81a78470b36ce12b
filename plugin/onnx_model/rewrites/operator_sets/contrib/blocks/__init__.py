"""Weights in blocks of small integers: products and look-ups by them, in all forms in which models have them."""
