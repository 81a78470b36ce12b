"""Tile sizes for products whose result stays in registers, by the number of registers.

A tile of ``rows x columns`` needs ``rows * columns / lanes`` accumulators and loads ``columns / lanes`` vectors and
``rows`` scalars per step: near-square tiles that fill the registers load least (Goto and van de Geijn, 2008,
section 5).
"""

from __future__ import annotations

from dataclasses import dataclass

from sartor.codegen.mlir.machine import Machine

_UNROLL = 4
_MOST_PANEL = 64
_MOST_ROWS = 16
_WORKGROUPS = 8


@dataclass(frozen=True)
class RegisterTile:
    """A tile of the result and the step of the reduction.

    Attributes:
        rows: of the tile.
        columns: of the tile, a power of two: IREE spills vectors of other sizes.
        depth: unrolled steps of the reduction.
        panel: columns that one workgroup computes.
    """

    rows: int
    columns: int
    depth: int
    panel: int


def register_tiles(rows: int, columns: int, depth: int, machine: Machine) -> list[RegisterTile]:
    """Tiles worth trying for a result of ``rows x columns`` with ``depth`` steps, best guess first.

    Tiles that fill the registers step through the reduction one by one; smaller ones leave registers for it to be
    unrolled.
    """
    most, lanes = machine.accumulators, machine.lanes
    fewer = (most + _UNROLL) // 2
    wide = [(most, 2, 1), (fewer, 4, _UNROLL), (fewer, 2, _UNROLL), (most, 4, 1)]
    narrow = [(most, 1, 1), (fewer, 1, _UNROLL)]
    fitting = [
        RegisterTile(balanced(rows, accumulators // vectors), vectors * lanes, min(unroll, depth), vectors * lanes)
        for accumulators, vectors, unroll in (wide if columns % (2 * lanes) == 0 else narrow)
        if columns % (vectors * lanes) == 0
    ]
    return list(dict.fromkeys(fitting)) or _ragged_tiles(rows, columns, most, lanes)


def _ragged_tiles(rows: int, columns: int, most: int, lanes: int) -> list[RegisterTile]:
    """Tiles for columns that do not fill vectors; narrower ones compute the rest."""
    panel = _ragged_panel(columns, lanes)
    widths = dict.fromkeys(min(lanes * vectors, _power_of_two(panel)) for vectors in (1, 2))
    return [
        RegisterTile(balanced(rows, max(1, most * lanes // max(width, lanes))), width, 1, panel) for width in widths
    ]


def _ragged_panel(columns: int, lanes: int) -> int:
    """All columns if they are few; else a divisor of them, preferably a multiple of half or a quarter of a vector."""
    if columns <= _MOST_PANEL:
        return columns
    divisors = [index for index in range(2, _MOST_PANEL * 4) if columns % index == 0]
    for unit in (lanes // 2, lanes // 4, 1):
        if whole := [divisor for divisor in divisors if unit and divisor % unit == 0 and divisor >= lanes]:
            return whole[-1]
    return columns


def vector_tiles(columns: int, depth: int, machine: Machine) -> list[RegisterTile]:
    """Tiles for a result of one row. Reading the weights takes most of the time, so a tile has many vectors."""
    lanes = machine.lanes
    panel = _ragged_panel(columns, lanes) if columns > _MOST_PANEL else columns
    widths = dict.fromkeys(min(lanes * vectors, _power_of_two(panel)) for vectors in (8, 4))
    return [RegisterTile(1, width, min(2 * _UNROLL, depth), panel) for width in widths]


def balanced(extent: int, tile: int) -> int:
    """The smallest tile that needs no more steps over ``extent`` than ``tile`` does."""
    steps = -(-extent // tile)
    return -(-extent // steps)


def row_block(rows: int, groups: int, most: int = _MOST_ROWS) -> int:
    """Rows of a workgroup: the largest divisor of ``rows`` up to ``most`` that leaves enough workgroups.

    Args:
        rows: all of them.
        groups: workgroups that partition the columns.
        most: upper bound.
    """
    divisors = [index for index in range(1, min(rows, most) + 1) if rows % index == 0]
    enough = [divisor for divisor in divisors if (rows // divisor) * groups >= _WORKGROUPS]
    return enough[-1] if enough else 1


def _power_of_two(size: int) -> int:
    return 1 << (size.bit_length() - 1)
