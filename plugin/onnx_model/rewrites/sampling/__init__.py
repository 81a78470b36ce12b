"""Operators that read between pixels: positions are computed, pixels gathered and weighted."""
