"""The selection problem: choices and their costs, limits, and the cost of a plan."""
