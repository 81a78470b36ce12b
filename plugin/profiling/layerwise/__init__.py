"""Checking a built network layer by layer, by a build of the same code that returns what its layers compute."""
