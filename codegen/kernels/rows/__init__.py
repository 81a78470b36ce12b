"""Layers that compute each row of a tensor from that row alone."""
