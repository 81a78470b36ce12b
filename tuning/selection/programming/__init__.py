"""Exact selection by integer linear programming, within limits on memory and error."""
