"""Selecting the best plan by cost tables: the solvers by name, and the choice of one for an objective and limits."""
