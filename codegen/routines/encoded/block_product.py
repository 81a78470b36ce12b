"""Matrix products by weights in blocks of small integers, whose codes are decoded in registers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sartor.codegen.analysis.matmul import MatmulShape
from sartor.codegen.ir.schema import QUANTISED
from sartor.codegen.ir.variants.routine import Rejected
from sartor.codegen.ir.variants.traits import Traits
from sartor.codegen.kernels.encoded.block_contraction import BlockContraction
from sartor.codegen.kernels.encoded.block_dots import BlockDots
from sartor.codegen.kernels.encoded.block_routine import BlockRoutine, EncodedProduct, refused_dots
from sartor.codegen.kernels.encoded.encoded_weight import EncodedWeight
from sartor.codegen.kernels.isa.multipliers import INTEGER_DOTS, DotElement
from sartor.codegen.kernels.layers.kernel_layer import KernelParts
from sartor.codegen.kernels.loops.partition import long_workgroups
from sartor.codegen.kernels.loops.tiling import Tiling
from sartor.codegen.mlir.machine import Machine

# Vectors of a panel. One row needs no more than hide latencies; with more rows, each word that is decoded should serve
# as many as the registers hold.
_WIDTHS_OF_ROW = (4, 2, 8, 1)
_WIDTHS = (4, 2, 1)
_MOST_ROWS = 8
# Registers of a tile beside sums: for each vector a scale, words and an element, or words and codes in bytes; and the
# table of codes, and a number of a row. Totals of integer sums are needed at the end of a block only.
_OF_VECTOR, _OF_VECTOR_IN_BYTES, _OTHERS = 3, 2, 2


@dataclass(frozen=True)
class BlockProduct(BlockRoutine):
    """Multiplies f32 by codes, which are decoded in registers."""

    name: str = "block_product"

    @property
    def traits(self) -> Traits:
        return Traits(family="block_product", sizes=Tiling.names())

    def refusal(self, weight: EncodedWeight, shape: MatmulShape, machine: Machine) -> Rejected | None:
        return None

    def tilings(self, shape: MatmulShape, machine: Machine) -> list[Tiling]:
        return _tilings(shape, machine, _OF_VECTOR)

    def parts(self, product: EncodedProduct) -> KernelParts:
        return KernelParts(BlockContraction(product.nest, product.blocks, product.image, product.memories))


@dataclass(frozen=True)
class BlockDotProduct(BlockRoutine):
    """Rounds rows to 8 bits, block by block, and multiplies them by codes.

    Every workgroup rounds the rows that it reads, so if one thread runs all, one workgroup may be best.

    Attributes:
        storage: the type that the kernel computes in; activations and the result have the model's.
        element: instruction that multiplies groups of integers without a sign by signed ones.
    """

    name: str = "block_dots"
    storage: str | None = QUANTISED
    element: DotElement = INTEGER_DOTS

    @property
    def traits(self) -> Traits:
        return Traits(
            family="block_dots",
            precision=QUANTISED,
            instruction=self.element,
            converts=True,
            scales_rows=True,
            needs_permission=True,
            sizes=Tiling.names(),
        )

    def refusal(self, weight: EncodedWeight, shape: MatmulShape, machine: Machine) -> Rejected | None:
        return refused_dots(weight, self.element, machine)

    def tilings(self, shape: MatmulShape, machine: Machine) -> list[Tiling]:
        found = _tilings(shape, machine, _OF_VECTOR_IN_BYTES)
        whole = [replace(tiling, panel_groups=1) for tiling in found[:1]] if machine.threads == 1 else []
        return list(dict.fromkeys([*found, *whole]))

    def parts(self, product: EncodedProduct) -> KernelParts:
        rows = product.rounded_rows()
        code = BlockDots(product.nest, product.blocks, rows, product.memories, self.element)
        return KernelParts(code, code.workspace, product.memories[0])


def _tilings(shape: MatmulShape, machine: Machine, of_vector: int) -> list[Tiling]:
    """Sizes worth trying, best guess first.

    Args:
        shape: of the product.
        machine: the CPU.
        of_vector: registers for each vector of a panel beside sums.
    """
    rows, vectors = shape.rows or 1, -(-shape.columns // machine.lanes)
    widths: Sequence[int] = _WIDTHS_OF_ROW if rows == 1 else _WIDTHS
    found = []
    for wide in widths:
        if wide > vectors and wide > 1:
            continue
        free = machine.registers - _OTHERS - of_vector * wide
        most = 1 if rows == 1 else min(rows, _MOST_ROWS, max(1, free // wide))
        tile = -(-rows // -(-rows // most))
        panels = -(-vectors // wide)
        found.append(Tiling(1, tile, wide, 1, long_workgroups(panels, machine.threads), 1))
    return list(dict.fromkeys(found))
