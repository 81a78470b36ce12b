"""Rewrites of convolutions and poolings: padding, groups, transposed convolutions, and pixels from channels."""
