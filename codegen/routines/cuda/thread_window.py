"""Depthwise convolutions and poolings on GPUs of NVIDIA."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sartor.codegen.analysis.convolution import window_of
from sartor.codegen.ir.layer import Task
from sartor.codegen.ir.layouts import CHANNELS_LAST
from sartor.codegen.ir.rejection import RejectionError
from sartor.codegen.ir.schema import schemas_of
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Parameters, Rejected, integer, required
from sartor.codegen.ir.variants.traits import Traits
from sartor.codegen.kernels.cuda.costs import ThreadCost
from sartor.codegen.kernels.cuda.layers import gpu_of, widest_vector
from sartor.codegen.kernels.cuda.window import ThreadWindow
from sartor.codegen.kernels.layers.image_layer import ImageLayer
from sartor.codegen.kernels.layers.kernel_layer import KernelLayer, KernelParts
from sartor.codegen.kernels.layers.kernel_routine import StoringKernel
from sartor.codegen.mlir.rewriting.rewrite import Rewrite


@dataclass(frozen=True)
class ThreadWindows(StoringKernel):
    """A window over vectors of channels, with elementwise ops fused.

    Parameters: ``pixels``, adjacent pixels of a row that a thread computes.
    """

    name: str = "thread_window"

    @property
    def traits(self) -> Traits:
        return replace(super().traits, family="thread_window", sizes=("pixels",), estimate=ThreadCost())

    def parameters(self, task: Task, target: Target) -> list[Parameters] | Rejected:
        required(gpu_of(task, target))
        window = window_of(task)
        if window is None:
            return Rejected("neither a depthwise convolution nor a pooling in two dimensions")
        columns = window.result.shape[3]
        return [{"pixels": number} for number in (1, 2, 4) if number <= columns]

    def layer(self, task: Task, parameters: Parameters, target: Target) -> KernelLayer:
        """The kernel for one parameter set.

        Raises:
            RejectionError: if there is no kernel for the layer.
        """
        window = window_of(task)
        if window is None:
            raise RejectionError("neither a depthwise convolution nor a pooling in two dimensions")
        rewrite = Rewrite.plain(task)
        with rewrite.module.context:
            images = ImageLayer.of(rewrite, CHANNELS_LAST, widest_vector(window.result.shape[1]))
            code = ThreadWindow.of(images, window, integer(parameters["pixels"]))
        inputs = schemas_of(task.inputs, images.inputs, target.device, self.storage)
        (output,) = schemas_of(task.results, (images.output,), target.device, self.storage)
        return KernelLayer.of(task, rewrite, inputs, output, KernelParts(code))
