"""Whole networks in workers: built, run and timed in place."""
