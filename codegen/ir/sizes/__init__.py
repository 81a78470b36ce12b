"""Sizes that are known only when a network runs: symbols, and what follows from them."""
