"""Asks IREE which rewrites it needs no longer: each that mends something has a small model that shows it."""
