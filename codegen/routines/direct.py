"""Direct convolution by a kernel of our own, in NHWC or in blocks of channels.

The parameters are those of NeoCPU's template (Liu et al., 2019, section 3.1): the block of channels, the columns of a
register tile and how far the reduction is unrolled; rows and panels say what one workgroup computes.
"""

from __future__ import annotations

from dataclasses import dataclass

from sartor.codegen.convolution import Convolution, convolution_of
from sartor.codegen.draft import Draft
from sartor.codegen.kernels.convolution import ImageLayer, convolution_contraction, convolution_tilings
from sartor.codegen.kernels.kernel_layer import KernelLayer, build_kernel
from sartor.codegen.kernels.tiling import Tiling
from sartor.codegen.layer import LayerKind, Task
from sartor.codegen.layouts import CHANNELS_LAST
from sartor.codegen.machine import Machine, kernel_machine
from sartor.codegen.routine import Implementation, Parameters, Rejected
from sartor.codegen.target import Target


@dataclass(frozen=True)
class Direct:
    """Convolution in registers, padding left out, everything elementwise fused.

    Parameters: ``columns`` and ``vectors`` of the register tile, ``rows`` and ``panels`` of a workgroup, ``unroll``.
    """

    name: str = "direct"
    blocked: bool = False

    def parameters(self, task: Task, target: Target) -> list[Parameters] | Rejected:
        machine, convolution = _asked(task, target)
        if isinstance(machine, Rejected):
            return machine
        if convolution is None:
            return Rejected("not a two-dimensional convolution without groups")
        if self.blocked and convolution.result.shape[1] % machine.lanes:
            return Rejected(f"its channels do not divide into vectors of {machine.lanes}")
        return [tiling.parameters() for tiling in convolution_tilings(convolution, machine)]

    def build(self, task: Task, parameters: Parameters, target: Target) -> Implementation | Rejected:
        return build_kernel(self, task, parameters, target)

    def layer(self, task: Task, parameters: Parameters, target: Target) -> KernelLayer:
        """The kernel of a convolution.

        Raises:
            ValueError: if there is none.
        """
        machine, convolution = _asked(task, target)
        if isinstance(machine, Rejected) or convolution is None:
            raise ValueError("not a convolution for kernels")
        layout = f"nchw{machine.lanes}c" if self.blocked else CHANNELS_LAST
        draft = Draft.plain(task)
        with draft.module.context:
            images = ImageLayer.of(draft, layout, machine.lanes)
            code = convolution_contraction(images, convolution, Tiling.of(parameters))
        return KernelLayer(draft, images.inputs, images.output, code)


def _asked(task: Task, target: Target) -> tuple[Machine | Rejected, Convolution | None]:
    convolution = convolution_of(task) if task.kind is LayerKind.CONVOLUTION else None
    return kernel_machine(task, target), convolution
