"""Convolutions and products on GPUs of NVIDIA, by instructions that multiply matrices."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from sartor.codegen.analysis.convolution import convolution_of
from sartor.codegen.analysis.matmul import is_by_weight, product_rewrite, product_shape
from sartor.codegen.ir.layer import LayerKind, Task
from sartor.codegen.ir.layouts import CHANNELS_LAST
from sartor.codegen.ir.rejection import RejectionError
from sartor.codegen.ir.schema import schemas_of
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Parameters, Rejected, required
from sartor.codegen.ir.variants.traits import Traits
from sartor.codegen.kernels.cuda.costs import ProductCost, product_cycles
from sartor.codegen.kernels.cuda.layers import (
    activation_product,
    convolution_product,
    gpu_of,
    lanes_for,
    weight_product,
)
from sartor.codegen.kernels.cuda.tensor_kernel import TensorKernel
from sartor.codegen.kernels.layers.image_layer import ImageLayer
from sartor.codegen.kernels.layers.kernel_layer import KernelLayer, KernelParts
from sartor.codegen.kernels.layers.product_layer import ProductLayer
from sartor.codegen.kernels.tensor_cores.implicit_product import ImplicitProduct
from sartor.codegen.kernels.tensor_cores.split_sum import SplitLayer
from sartor.codegen.kernels.tensor_cores.tiling import BlockTiling, BlockWork, block_tilings
from sartor.codegen.mlir.rewriting.rewrite import Rewrite

# Tilings that the model prefers; each is compiled and measured where there is a GPU.
_TRIED = 8


@dataclass(frozen=True)
class Implicit(TensorKernel):
    """Convolutions without groups, and products by a weight or of two activations, with elementwise ops fused.

    Parameters: those of ``BlockTiling``.
    """

    name: str = "implicit"

    @property
    def traits(self) -> Traits:
        estimate = ProductCost(self.instruction)
        return replace(super().traits, family="implicit", sizes=BlockTiling.names(), estimate=estimate)

    def parameters(self, task: Task, target: Target) -> list[Parameters] | Rejected:
        gpu, work = required(gpu_of(task, target)), required(self._work(task))
        tilings = list(block_tilings(work, gpu, self.instruction))
        if self.instruction.is_integer:
            # Parts of sums are stored in f32, which does not hold all integers of 32 bits.
            tilings = [tiling for tiling in tilings if tiling.split == 1]
        best = sorted(tilings, key=lambda tiling: product_cycles(work, tiling, gpu, self.instruction))
        return [tiling.parameters() for tiling in best[:_TRIED]]

    def _work(self, task: Task) -> BlockWork | Rejected:
        bytes_ = self.instruction.bytes
        if task.kind is LayerKind.CONVOLUTION:
            convolution = convolution_of(task)
            if convolution is None:
                return Rejected("not a two-dimensional convolution without groups")
            batches, channels, height, width = convolution.result.shape
            depth = convolution.filter.elements // channels
            return BlockWork(batches, height * width, channels, depth * bytes_)
        if task.kind is not LayerKind.CONTRACTION:
            return Rejected("neither a convolution nor a matrix product")
        shape = product_shape(task)
        if isinstance(shape, Rejected):
            return shape
        if shape.shares_lhs:
            return Rejected("one LHS is multiplied by several matrices")
        if self.instruction.is_integer and not is_by_weight(task):
            return Rejected("two activations in 8 bits are not multiplied")
        return BlockWork(math.prod(shape.batches), shape.rows or 1, shape.columns, shape.depth * bytes_)

    def layer(self, task: Task, parameters: Parameters, target: Target) -> KernelLayer:
        """The kernel for one parameter set.

        Raises:
            RejectionError: if there is no kernel for the layer.
        """
        if isinstance(gpu := gpu_of(task, target), Rejected):
            raise RejectionError(gpu.reason)
        tiling = BlockTiling.of(parameters)
        if task.kind is LayerKind.CONVOLUTION:
            return self._convolution(task, tiling, target)
        return self._product(task, tiling, target)

    def _convolution(self, task: Task, tiling: BlockTiling, target: Target) -> KernelLayer:
        convolution = convolution_of(task)
        if convolution is None:
            raise RejectionError("not a two-dimensional convolution without groups")
        rewrite = Rewrite.plain(task)
        with rewrite.module.context:
            images = ImageLayer.of(rewrite, CHANNELS_LAST, lanes_for(convolution.result.shape[1]))
            code = convolution_product(images, convolution, tiling, self.instruction)
        inputs = schemas_of(task.inputs, images.inputs, target.device, self.storage)
        (output,) = schemas_of(task.results, (images.output,), target.device, self.output or self.storage)
        return _layer(KernelLayer.of(task, rewrite, inputs, output, KernelParts(code)), code)

    def _product(self, task: Task, tiling: BlockTiling, target: Target) -> KernelLayer:
        rewrite, shape = product_rewrite(task), product_shape(task)
        if isinstance(rewrite, Rejected) or isinstance(shape, Rejected):
            raise RejectionError("not a matrix product")
        with rewrite.module.context:
            product = ProductLayer.of(rewrite, lanes_for(shape.columns))
            multiply = weight_product if product.is_by_weight else activation_product
            code = multiply(product, tiling, self.instruction)
        inputs = schemas_of(task.inputs, rewrite.inputs, target.device, self.storage)
        (output,) = schemas_of(task.results, rewrite.outputs, target.device, self.output or self.storage)
        return _layer(KernelLayer.of(task, rewrite, inputs, output, KernelParts(code)), code)


def _layer(layer: KernelLayer, code: ImplicitProduct) -> KernelLayer:
    return layer if code.tiling.split == 1 else SplitLayer.split(layer, code)
