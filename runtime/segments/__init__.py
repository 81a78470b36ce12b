"""Segments: the parts of a network that run on one device each, in one file, and how they are run in order."""
