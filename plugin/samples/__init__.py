"""Samples, the inputs on which models are run: the user's, or random ones."""
