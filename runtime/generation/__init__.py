"""Generating tokens with a session whose module keeps a decoder's caches."""
