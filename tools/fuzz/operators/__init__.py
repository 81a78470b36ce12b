"""Operators of random models: each function adds one operator, or a few that belong together, to a graph."""
