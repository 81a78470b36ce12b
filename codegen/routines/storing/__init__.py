"""Routines that run kernels and lowerings of others on tensors that are stored in another type."""
