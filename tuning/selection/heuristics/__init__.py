"""Heuristic solvers."""
