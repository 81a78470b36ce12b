"""Whole networks in workers: built, run and timed."""
