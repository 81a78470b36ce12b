"""Convolution with AMX, images in bf16 or 8 bits with channels last."""

from __future__ import annotations

from dataclasses import dataclass

from sartor.codegen.analysis.convolution import Convolution
from sartor.codegen.ir.variants.routine import Parameters, Rejected
from sartor.codegen.ir.variants.traits import Traits
from sartor.codegen.kernels.amx.contraction import filled
from sartor.codegen.kernels.amx.convolution import is_merged, joins_uncopied, tile_contraction
from sartor.codegen.kernels.amx.tilings import TileTiling, TileWork, tile_tilings
from sartor.codegen.kernels.isa.amx import BFLOAT, TileElement
from sartor.codegen.kernels.layers.image_layer import ImageLayer
from sartor.codegen.kernels.layers.image_routine import ConvolutionRoutine
from sartor.codegen.kernels.layers.instruction_traits import tile_traits
from sartor.codegen.kernels.layers.kernel_layer import KernelParts
from sartor.codegen.mlir.machine import Machine


@dataclass(frozen=True)
class TileConvolution(ConvolutionRoutine):
    """Convolution in AMX's tiles, with elementwise ops fused.

    Parameters: those of ``TileTiling``.

    Attributes:
        element: instruction that multiplies tiles.
    """

    name: str = "tiles"
    storage: str | None = BFLOAT.dtype
    element: TileElement = BFLOAT

    @property
    def traits(self) -> Traits:
        return tile_traits(super().traits, self.element, TileTiling.names())

    @property
    def needs(self) -> tuple[str, ...]:
        return (self.element.feature,)

    def tilings(self, match: Convolution, machine: Machine) -> list[TileTiling] | Rejected:
        if refusal := self.element.refusal(machine):
            return refusal
        channels, depth, height, width = match.filter.shape
        _, _, rows, columns = match.result.shape
        if is_merged(match):
            depth, width = width * filled(depth, self.element), 1
        work = TileWork(rows, columns, channels, depth, height * width, joins_uncopied(match, self.element))
        return tile_tilings(work, machine, self.element)

    def parts(self, images: ImageLayer, match: Convolution, parameters: Parameters) -> KernelParts:
        tiling = TileTiling.of(parameters)
        code = tile_contraction(images, match, tiling, self.element, is_read_as_is=True)
        return KernelParts(code, code.workspace, code.memories[0])
