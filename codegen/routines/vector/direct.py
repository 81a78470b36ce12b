"""Direct convolution by our own kernel, in NHWC or in blocks of channels.

The parameters are those of NeoCPU's template (Liu et al., 2019, section 3.1), the block of channels, the columns of a
register tile and the unrolling of the reduction, and the partition into workgroups.
"""

from __future__ import annotations

from dataclasses import dataclass

from sartor.codegen.analysis.convolution import Convolution
from sartor.codegen.ir.variants.routine import Parameters, Rejected
from sartor.codegen.ir.variants.traits import Traits
from sartor.codegen.kernels.isa.multipliers import DotElement
from sartor.codegen.kernels.isa.pairs import DEVICES_OF_PAIRS, PairElement, refused_pairs
from sartor.codegen.kernels.layers.dot_choice import refused, worth_trying
from sartor.codegen.kernels.layers.image_layer import ImageLayer
from sartor.codegen.kernels.layers.image_routine import ConvolutionRoutine
from sartor.codegen.kernels.layers.instruction_traits import dot_traits, rounding_arithmetic, storage_of
from sartor.codegen.kernels.layers.kernel_layer import KernelParts
from sartor.codegen.kernels.loops.tiling import Tiling
from sartor.codegen.kernels.vector.convolution import convolution_contraction, convolution_tilings
from sartor.codegen.mlir.kernel_machine import CPU_ONLY
from sartor.codegen.mlir.machine import Machine


@dataclass(frozen=True)
class Direct(ConvolutionRoutine):
    """Convolution in register tiles, with padding left out and elementwise ops fused.

    Parameters: those of ``Tiling``.

    Attributes:
        element: instruction that multiplies groups; None for single numbers in f32.
        weights: narrower type that filters are stored in and widened from, if single numbers in f32 are multiplied;
            None for f32. They are rounded to it in 8 bits, else only if activations are as well.
    """

    name: str = "direct"
    element: DotElement | None = None
    weights: str | None = None

    @property
    def traits(self) -> Traits:
        return dot_traits(super().traits, "direct", self.element, self.weights, self.storage)

    @property
    def arithmetic(self) -> str | None:
        """The type that filters are rounded to while values keep theirs in memory; None if they are not."""
        return rounding_arithmetic(self.weights)

    @property
    def devices(self) -> tuple[str, ...]:
        if isinstance(self.element, PairElement):
            return DEVICES_OF_PAIRS
        return self.in_subgroups if self.element is None and self.weights is None else CPU_ONLY

    def tilings(self, match: Convolution, machine: Machine) -> list[Tiling] | Rejected:
        depth = match.filter.shape[1]
        refusal = refused(machine, self.storage, self.element, depth)
        refusal = refusal or refused_pairs(machine, self.element, self.storage, depth)
        if refusal is not None:
            return refusal
        return worth_trying(convolution_tilings(match, machine, self.element), machine, self.storage, self.element)

    def parts(self, images: ImageLayer, match: Convolution, parameters: Parameters) -> KernelParts:
        code = convolution_contraction(
            images, match, Tiling.of(parameters), self.element, storage_of(self.weights, self.storage)
        )
        return KernelParts(code, factor=code.memories[0])
