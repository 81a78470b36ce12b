"""Routines that IREE lowers, as it sees fit or on packed matrices."""
