"""Measuring variants: compiled and run in workers, checked, timed in turn."""
