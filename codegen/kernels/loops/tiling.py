"""Sizes of tiles, a kernel's parameters."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Self

from sartor.codegen.ir.variants.routine import Parameters, integer


@dataclass(frozen=True)
class Sizes:
    """Numbers by name, which are a routine's parameters."""

    @classmethod
    def of(cls, parameters: Parameters) -> Self:
        """The sizes that a routine's parameters name."""
        return cls(**{name: integer(value) for name, value in parameters.items()})

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """Names of the parameters."""
        return tuple(field.name for field in fields(cls))

    def parameters(self) -> Parameters:
        """The sizes as a routine's parameters."""
        return asdict(self)


@dataclass(frozen=True)
class Tiling(Sizes):
    """Sizes of tiles.

    Attributes:
        lines: rows of a register tile; more than one only where a workgroup computes all rows.
        columns: of a register tile.
        vectors: vectors of channels in a register tile, and in a panel.
        row_groups: workgroups that partition the rows of the result.
        panel_groups: workgroups that partition the panels.
        unroll: steps over input channels that are written out.
    """

    lines: int
    columns: int
    vectors: int
    row_groups: int
    panel_groups: int
    unroll: int
