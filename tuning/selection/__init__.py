"""Choosing the best plan by a cost table: the solvers by name, and the one for an objective and limits."""
