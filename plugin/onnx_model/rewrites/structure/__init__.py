"""Rewrites of the graph's structure: constants, inlining, node order, and unused nodes."""
