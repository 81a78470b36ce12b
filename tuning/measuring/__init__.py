"""Measuring variants in workers: compiling, checking their results, and timing them in turn."""
