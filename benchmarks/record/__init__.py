"""Measures what the documents say, keeps it as JSON under ``benchmarks/results``, and writes the tables from there."""
