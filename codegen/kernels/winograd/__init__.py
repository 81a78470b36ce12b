"""Winograd's minimal filtering as one kernel."""
