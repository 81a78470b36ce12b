"""The selection problem: choices, their costs, limits, and what a plan of them costs."""
