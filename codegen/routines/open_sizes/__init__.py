"""Routines for layers whose sizes are known only when they run."""
