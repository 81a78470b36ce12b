"""Rewrites of the graph itself: constants, inlining, order, and what nobody needs."""
