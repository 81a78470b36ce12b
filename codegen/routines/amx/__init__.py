"""Routines with our own kernels for AMX."""
