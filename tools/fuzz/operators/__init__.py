"""Operators that random models are made of: each function adds one, or a few that belong together, to a graph."""
