"""A depthwise and a 1x1 convolution as one kernel, on GPUs of NVIDIA."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sartor.codegen.ir.layer import Task
from sartor.codegen.ir.layouts import CHANNELS_LAST
from sartor.codegen.ir.rejection import RejectionError
from sartor.codegen.ir.schema import schemas_of
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Parameters, Rejected, required
from sartor.codegen.ir.variants.traits import Traits
from sartor.codegen.kernels.cuda.costs import SeparableProductCost, separable_cycles
from sartor.codegen.kernels.cuda.layers import convolution_product, gpu_of, lanes_for
from sartor.codegen.kernels.cuda.separable import ComputedRows, SeparableProduct, vectors_of_a_thread
from sartor.codegen.kernels.cuda.tensor_kernel import TensorKernel
from sartor.codegen.kernels.layers.image_layer import ImageLayer
from sartor.codegen.kernels.layers.kernel_layer import KernelLayer
from sartor.codegen.kernels.loops.tiling import Tiling
from sartor.codegen.kernels.tensor_cores.tiling import BlockTiling, BlockWork, block_tilings
from sartor.codegen.kernels.windows.separable import Separable, check_source, input_layouts, separable_of, wirings
from sartor.codegen.kernels.windows.window import window_sliding
from sartor.codegen.mlir.rewriting.rewrite import Rewrite

_TRIED = 6
# Vectors of channels that a thread computes for a stage of 64 bytes, and half of them for one of 128, which has more
# fragments: otherwise sums and addresses do not fit its registers.
_MOST_PASSES, _STAGE_BYTES = 4, 64
# Numbers of four bytes in tiles of more rows leave no registers for the addresses of another stage.
_FLOAT_BYTES, _MOST_STAGES, _FEW_ROWS = 4, 3, 32
_ONE = Tiling(1, 1, 1, 1, 1, 1)


@dataclass(frozen=True)
class TensorSeparable(TensorKernel):
    """A separable convolution (Chollet, Xception, 2017), with elementwise ops after both convolutions fused.

    Parameters: those of ``BlockTiling``, for the 1x1 convolution; its reduction is not split.
    """

    name: str = "separable_product"

    @property
    def traits(self) -> Traits:
        estimate, sizes = SeparableProductCost(self.instruction), BlockTiling.names()
        return replace(super().traits, family="separable_product", fuses=True, sizes=sizes, estimate=estimate)

    def parameters(self, task: Task, target: Target) -> list[Parameters] | Rejected:
        gpu, match = required(gpu_of(task, target)), separable_of(task)
        if match is None:
            return Rejected("no depthwise convolution with an unpadded 1x1 convolution after it")
        batches, channels, height, width = match.convolution.result.shape
        depth, (down, across) = match.convolution.filter.shape[1], match.window.kernel
        if depth % lanes_for(channels):
            return Rejected(f"{depth} channels do not divide into vectors of {lanes_for(channels)}")
        work = BlockWork(batches, height * width, channels, depth * self.instruction.bytes)
        tilings = [
            block_tiling
            for block_tiling in block_tilings(work, gpu, self.instruction)
            if block_tiling.split == 1 and self._fits(block_tiling, channels)
        ]
        tilings.sort(key=lambda tiling: separable_cycles(work, down * across, tiling, gpu, self.instruction))
        kept: list[Parameters] = [tiling.parameters() for tiling in tilings[:_TRIED] if not self._spills(tiling)]
        return kept or Rejected("no tiling fits a thread's registers")

    def _spills(self, tiling: BlockTiling) -> bool:
        """Whether the assembler spills, as for sm_90: each of four stages has its addresses."""
        return self.instruction.bytes == _FLOAT_BYTES and tiling.stages > _MOST_STAGES and tiling.rows > _FEW_ROWS

    def _fits(self, tiling: BlockTiling, channels: int) -> bool:
        passes = vectors_of_a_thread(tiling, lanes_for(channels), self.instruction.bytes)
        return passes * tiling.depth <= _MOST_PASSES * _STAGE_BYTES

    def layer(self, task: Task, parameters: Parameters, target: Target) -> KernelLayer:
        """The kernel for one parameter set.

        Raises:
            RejectionError: if there is no kernel for the layer.
        """
        match = separable_of(task)
        if match is None or isinstance(gpu_of(task, target), Rejected):
            raise RejectionError("no depthwise convolution with an unpadded 1x1 convolution after it")
        lanes = lanes_for(match.convolution.result.shape[1])
        first, second = (ImageLayer.of(Rewrite.plain(stage.task), CHANNELS_LAST, lanes) for stage in task.stages)
        with first.rewrite.module.context:
            code = self._code(task, match, (first, second), BlockTiling.of(parameters))
        inputs = schemas_of(task.inputs, input_layouts(task, (first, second)), target.device, self.storage)
        (output,) = schemas_of(task.results, (second.output,), target.device, self.output or self.storage)
        return KernelLayer(task, (first.rewrite, second.rewrite), inputs, output, code)

    def _code(
        self, task: Task, match: Separable, layers: tuple[ImageLayer, ImageLayer], tiling: BlockTiling
    ) -> SeparableProduct:
        first, second = layers
        rows = ComputedRows(window_sliding(first, match.window, _ONE), tiling, self.instruction.bytes)
        product = convolution_product(second, match.convolution, tiling, self.instruction, rows)
        check_source(second, product.memories[0], task.stages[1].inputs)
        return SeparableProduct(product, rows, wirings(task))
