"""Rewrites of convolutions and pooling: pads, groups, and transposed ones."""
