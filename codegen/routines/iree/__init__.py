"""Routines whose code IREE generates, with its own tiles or on packed matrices."""
