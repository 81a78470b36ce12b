"""Direct convolution by our own kernel, in NHWC or in blocks of channels.

The parameters are those of NeoCPU's template (Liu et al., 2019, section 3.1), the block of channels, the columns of a
register tile and the unrolling of the reduction, and the partition into workgroups.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from sartor.codegen.analysis.convolution import Convolution, convolution_of
from sartor.codegen.ir.layer import LayerKind, Task, TensorType
from sartor.codegen.ir.variants.routine import Parameters, Rejected
from sartor.codegen.ir.variants.traits import Traits
from sartor.codegen.kernels.isa.multipliers import DotElement
from sartor.codegen.kernels.layers.analytic_costs import DirectCost, DotCost
from sartor.codegen.kernels.layers.dot_choice import refused, worth_trying
from sartor.codegen.kernels.layers.image_layer import ImageLayer
from sartor.codegen.kernels.layers.image_routine import ImageRoutine
from sartor.codegen.kernels.layers.kernel_layer import KernelCode
from sartor.codegen.kernels.loops.tiling import Tiling
from sartor.codegen.kernels.vector.convolution import convolution_contraction, convolution_tilings
from sartor.codegen.mlir.machine import Machine


@dataclass(frozen=True)
class Direct(ImageRoutine[Convolution]):
    """Convolution in register tiles, with padding left out and elementwise ops fused.

    Parameters: those of ``Tiling``.

    Attributes:
        element: instruction that multiplies groups; None for single numbers in f32.
    """

    name: str = "direct"
    element: DotElement | None = None

    @property
    def traits(self) -> Traits:
        if self.element is None:
            return replace(super().traits, family="direct", cost=DirectCost())
        cost = DotCost(self.element.group, self.element.dtype)
        return replace(super().traits, family="dots", instruction=self.element, cost=cost)

    def match(self, task: Task) -> Convolution | Rejected:
        convolution = convolution_of(task) if task.kind is LayerKind.CONVOLUTION else None
        return convolution or Rejected("not a two-dimensional convolution without groups")

    def channels(self, match: Convolution) -> tuple[int, ...]:
        return (match.result.shape[1],)

    def tilings(self, match: Convolution, machine: Machine) -> list[Tiling] | Rejected:
        refusal = refused(machine, self.storage, self.element, match.filter.shape[1])
        if refusal is not None:
            return refusal
        return worth_trying(convolution_tilings(match, machine, self.element), machine, self.storage, self.element)

    def code(
        self, images: ImageLayer, match: Convolution, parameters: Parameters
    ) -> tuple[KernelCode, TensorType | None]:
        return convolution_contraction(images, match, Tiling.of(parameters), self.element), None
