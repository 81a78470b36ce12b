"""Winograd's minimal filtering as a single kernel."""
