"""Rewrites of convolutions and poolings: padding, groups, and transposed convolutions."""
