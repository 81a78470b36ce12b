"""Convolutions and matrix products on AMX's tiles."""
