"""Layers taken apart and put together: fused pairs, groups, and the children a layer may be split into."""
