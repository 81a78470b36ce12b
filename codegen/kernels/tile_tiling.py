"""Sizes of a kernel on the matrix unit."""

from __future__ import annotations

from dataclasses import dataclass

from sartor.codegen.kernels.tiling import Sizes


@dataclass(frozen=True)
class TileTiling(Sizes):
    """Sizes of tiles and blocks of tiles.

    Attributes:
        lines: rows of the result in a block.
        tiles: tiles along a row in a block.
        pixels: of a tile.
        vectors: of channels in a block, and in a panel.
        depth: numbers in a row of a tile.
        row_groups: workgroups that share out the blocks of rows.
        panel_groups: workgroups that share out the panels.
    """

    lines: int
    tiles: int
    pixels: int
    vectors: int
    depth: int
    row_groups: int
    panel_groups: int
