"""Exact selection by dynamic programming (DPRS)."""
