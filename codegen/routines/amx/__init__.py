"""Routines by kernels of our own on AMX."""
