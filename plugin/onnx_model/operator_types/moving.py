"""Which operators only move elements: whoever looks past them takes them from here, and adds or leaves out its own."""

from __future__ import annotations

RESHAPING = frozenset({"Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"})
"""Operators whose results have the elements of their first operand, in the same order."""

MOVING = RESHAPING | {
    *("Concat", "DepthToSpace", "Expand", "Gather", "Slice", "SpaceToDepth", "Split", "Tile", "Transpose"),
}
"""Operators whose results are elements of their first operand, for Concat of any operand; some leave elements out, or
repeat them."""
