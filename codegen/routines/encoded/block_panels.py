"""Matrix products of many rows by weights in blocks of small integers, whose panels are decoded once for all rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from sartor.codegen.analysis.matmul import MatmulShape
from sartor.codegen.analysis.register_tiles import balanced
from sartor.codegen.ir.schema import QUANTISED
from sartor.codegen.ir.variants.routine import Rejected
from sartor.codegen.ir.variants.traits import Traits
from sartor.codegen.kernels.encoded.block_dots import BlockDots
from sartor.codegen.kernels.encoded.block_routine import BlockRoutine, EncodedProduct, refused_dots
from sartor.codegen.kernels.encoded.decoded_panels import DecodedPanels
from sartor.codegen.kernels.encoded.encoded_weight import EncodedWeight
from sartor.codegen.kernels.isa.multipliers import INTEGER_DOTS, DotElement
from sartor.codegen.kernels.layers.kernel_layer import KernelParts
from sartor.codegen.kernels.loops.partition import long_workgroups
from sartor.codegen.kernels.loops.tiling import Tiling
from sartor.codegen.kernels.loops.tilings import register_shapes
from sartor.codegen.mlir.machine import Machine

# Register tiles that are tried.
_TRIED = 3
# Fewer rows are a register tile or two, for which codes are better decoded in registers.
_LEAST_ROWS = 8
# Vectors of a panel of bytes, and registers beside sums: codes of each vector, and others.
_WIDTHS_IN_BYTES = (4, 2, 3)
_OTHERS = 2
_BYTE = 8


@dataclass(frozen=True)
class BlockPanels(BlockRoutine):
    """Multiplies f32 by panels that are decoded to f32."""

    name: str = "block_panels"

    @property
    def traits(self) -> Traits:
        return Traits(family="block_panels", sizes=Tiling.names())

    def refusal(self, weight: EncodedWeight, shape: MatmulShape, machine: Machine) -> Rejected | None:
        return _refused(shape)

    def tilings(self, shape: MatmulShape, machine: Machine) -> list[Tiling]:
        vectors = -(-shape.columns // machine.lanes)
        tiles = register_shapes(1, shape.rows or 1, vectors, shape.depth, machine)
        return _by_panels(((of.columns, of.vectors, of.unroll) for of in tiles[:_TRIED]), vectors, machine)

    def parts(self, product: EncodedProduct) -> KernelParts:
        code = DecodedPanels(product.nest, product.blocks, product.image, product.memories)
        return KernelParts(code, code.workspace, product.memories[0])


@dataclass(frozen=True)
class BlockPanelDots(BlockRoutine):
    """Rounds rows to 8 bits, block by block, and multiplies them by panels whose codes are copied to bytes.

    Attributes:
        storage: the type that the kernel computes in; activations and the result have the model's.
        element: instruction that multiplies groups of integers without a sign by signed ones.
    """

    name: str = "block_panel_dots"
    storage: str | None = QUANTISED
    element: DotElement = INTEGER_DOTS

    @property
    def traits(self) -> Traits:
        return Traits(
            family="block_panel_dots",
            precision=QUANTISED,
            instruction=self.element,
            converts=True,
            scales_rows=True,
            needs_permission=True,
            sizes=Tiling.names(),
        )

    def refusal(self, weight: EncodedWeight, shape: MatmulShape, machine: Machine) -> Rejected | None:
        if weight.encoding.bits == _BYTE:
            return Rejected("codes of 8 bits are bytes already")
        return _refused(shape) or refused_dots(weight, self.element, machine)

    def tilings(self, shape: MatmulShape, machine: Machine) -> list[Tiling]:
        rows, vectors = shape.rows or 1, -(-shape.columns // machine.lanes)
        widths = [wide for wide in _WIDTHS_IN_BYTES if wide <= vectors] or [1]
        tiles = ((balanced(rows, (machine.registers - _OTHERS - wide) // wide), wide, 1) for wide in widths)
        return _by_panels(tiles, vectors, machine)

    def parts(self, product: EncodedProduct) -> KernelParts:
        rows = product.rounded_rows()
        code = BlockDots(product.nest, product.blocks, rows, product.memories, self.element, copies=True)
        return KernelParts(code, code.workspace, product.memories[0])


def _refused(shape: MatmulShape) -> Rejected | None:
    return Rejected("its rows are too few to decode the weight for") if (shape.rows or 1) < _LEAST_ROWS else None


def _by_panels(tiles: Iterable[tuple[int, int, int]], vectors: int, machine: Machine) -> list[Tiling]:
    """Tilings by rows, vectors and unrolled steps of register tiles, whose workgroups partition panels; all in one
    workgroup if one thread runs them, as each has a workspace."""
    found: Sequence[Tiling] = [
        Tiling(1, rows, wide, 1, long_workgroups(-(-vectors // wide), machine.threads), unroll)
        for rows, wide, unroll in tiles
    ]
    if machine.threads == 1:
        found = [replace(tiling, panel_groups=1) for tiling in found]
    return list(dict.fromkeys(found))
