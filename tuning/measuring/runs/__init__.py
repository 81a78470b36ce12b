"""Timing what runs: a variant in steady state, and the first read of a file."""
