"""Errors of a network's outputs: measures, the sum of the layers' errors, and the error budget."""
