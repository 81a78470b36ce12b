"""Heuristic solvers, and the exhaustive solver that others are tested against."""
