"""Comparing a compiled module with other runtimes: its outputs, its layers, and its time."""
