"""Multiplies sums of products by filters that are stored as integers of 8 bits by the scales of their channels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sartor.codegen.ir.packing import Scaled, Storage
from sartor.codegen.kernels.emit.assembler import Assembler
from sartor.codegen.kernels.emit.index_arithmetic import Index
from sartor.codegen.kernels.loops.nest import Nest, Tile
from sartor.codegen.mlir.iree_compiler import ir

_FLOAT_BYTES = 4


@dataclass(frozen=True)
class FilterScales:
    """Layout of a panel of filters, which is followed by its scales.

    Attributes:
        numbers: bytes of a panel before the scales.
        panel: bytes of a panel.
    """

    numbers: int
    panel: int

    def starts(self, asm: Assembler, nest: Nest, memories: tuple[ir.Value, ir.Value], tile: Tile) -> list[ir.Value]:
        """Emit the zeros that the sums of a tile start from; arguments are those of ``reals``."""
        zero = asm.splat(ir.FloatAttr.get(ir.F32Type.get(), 0.0))
        return [zero for _ in tile.tile_vectors(nest.lanes)]

    def reals(
        self,
        asm: Assembler,
        nest: Nest,
        memories: tuple[ir.Value, ir.Value],
        tile: Tile,
        sums: Sequence[ir.Value],
        starts: Sequence[ir.Value],
    ) -> list[ir.Value]:
        """Emit the scaled sums of a tile, with the layer's initial values added.

        Args:
            asm: emits the code.
            nest: the loops around the tile.
            memories: the image and the filters.
            tile: the tile.
            sums: vectors of sums of products.
            starts: the layer's initial values.
        """
        begin: Index = asm.add(asm.mul(tile.panel.index, self.panel), self.numbers)
        scales = [
            asm.load_floats(memories[1], asm.add(begin, number * nest.lanes * _FLOAT_BYTES))
            for number in range(tile.panel.vectors)
        ]
        places = zip(tile.tile_vectors(nest.lanes), sums, starts, strict=True)
        return [asm.multiply_add(total, scales[place.vector], start) for place, total, start in places]


def scales_of(storage: Storage | None, panel: int, beside: int) -> FilterScales | None:
    """The scales after the numbers of a panel of ``panel`` bytes; None if filters are stored without."""
    return FilterScales(panel - beside, panel) if isinstance(storage, Scaled) else None
