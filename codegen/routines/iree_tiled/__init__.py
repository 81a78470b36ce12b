"""Routines with our workgroups and register tiles, for which IREE generates the code."""
