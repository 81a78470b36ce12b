"""Solvers that prove nothing, and the exhaustive one that they are tested against."""
