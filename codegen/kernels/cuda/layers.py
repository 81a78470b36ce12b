"""Layers that become an implicit product: convolutions of images with channels last, and products with weights."""

from __future__ import annotations

from dataclasses import replace

from sartor.codegen.analysis.convolution import Convolution
from sartor.codegen.ir.layer import Task
from sartor.codegen.ir.machines.cuda import CudaArchitecture, cuda_architecture
from sartor.codegen.ir.packing import Quantise, Reshape, Round, RoundMantissa, Step, Transpose, cut
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Rejected
from sartor.codegen.kernels.isa.multipliers import check_sums
from sartor.codegen.kernels.layers.convolution_operands import convolution_operands, joins
from sartor.codegen.kernels.layers.image_layer import ImageLayer
from sartor.codegen.kernels.layers.product_layer import ProductLayer
from sartor.codegen.kernels.loops.access import Access, ImageStrides
from sartor.codegen.kernels.loops.epilogue import Epilogue
from sartor.codegen.kernels.loops.tiles import Axis
from sartor.codegen.kernels.tensor_cores.implicit_product import ImplicitProduct
from sartor.codegen.kernels.tensor_cores.instructions import TF32_MANTISSA, MatrixInstruction
from sartor.codegen.kernels.tensor_cores.integer_result import FilterPanels, IntegerResult
from sartor.codegen.kernels.tensor_cores.matrix_rhs import MatrixRows
from sartor.codegen.kernels.tensor_cores.results import FinishedResult, WarpSums
from sartor.codegen.kernels.tensor_cores.staging import PixelRows, StagedRows
from sartor.codegen.kernels.tensor_cores.tiling import BlockTiling

PAIR = 2
"""Adjacent columns that a thread has of each sum."""

_WORD = 4
"""Bytes of the shortest copy to shared memory."""

_ONE = Axis(1, 1, 1, 1, 1, 0)


def gpu_of(task: Task, target: Target) -> CudaArchitecture | Rejected:
    """The GPU that a layer's kernels are compiled for; Rejected if they do not support the layer or target."""
    gpu = cuda_architecture(target.architecture) if target.is_cuda else None
    if gpu is None:
        return Rejected("it needs a GPU of NVIDIA from sm_80 on")
    if not all(tensor.is_f32 for tensor in task.tensors):
        return Rejected("its element types are not all f32")
    return gpu


def widest_vector(extent: int) -> int:
    """Elements of the vector that a thread computes: at most four, 16 bytes in f32, that divide an extent."""
    return next(number for number in (4, 2, 1) if extent % number == 0)


def lanes_for(columns: int) -> int:
    """Elements of the vectors in which a result of so many columns is stored."""
    return 1 if columns % PAIR else PAIR


def pack_columns(depth: int, columns: int, tiling: BlockTiling, instruction: MatrixInstruction) -> tuple[Step, ...]:
    """Steps from a RHS ``[depth, columns]`` to ``[tiles, steps, columns, depth]``: tiles that are copied at once.

    Integers are in these places, and not quantised.
    """
    step = tiling.depth // instruction.bytes
    tiles, steps = -(-columns // tiling.columns), -(-depth // step)
    flat = cut(((steps, step), (tiles, tiling.columns)), (2, 0, 3, 1))
    if instruction.is_integer:
        return flat
    if instruction.is_tf32:
        return flat if instruction.parts > 1 else (*flat, RoundMantissa(TF32_MANTISSA))
    return (*flat, Round(instruction.element))


def convolution_product(
    layer: ImageLayer,
    convolution: Convolution,
    tiling: BlockTiling,
    instruction: MatrixInstruction,
    computed: StagedRows | None = None,
) -> ImplicitProduct:
    """The product of a convolution layer; sets the packing of its filters.

    Args:
        layer: the layer that becomes a kernel.
        convolution: its root.
        tiling: sizes.
        instruction: multiplies.
        computed: computes rows of a 1x1 convolution's image; None if it is in memory.

    Raises:
        RejectionError: if the layer cannot be computed so.
    """
    channels, depth, *_ = convolution.filter.shape
    packing = pack_filters(convolution, tiling, instruction)
    # Numbers of four bytes are copied one by one; narrower ones cannot be, and come with channels last.
    read = convolution_operands(layer, convolution, packing, by_planes=instruction.bytes == _WORD)
    axes, strides = read.axes, read.image
    if joins(convolution):
        pixels = axes[0].output * axes[1].output
        axes = (_ONE, Axis(pixels, pixels, 1, 1, 1, 0))
        strides = ImageStrides(strides.batch, 0, strides.column, strides.block, strides.blocks)
    across = convolution.result.shape[3]
    source = PixelRows(axes, strides, depth, convolution.result.shape[0])

    def flattened(access: Access) -> Access:
        return access.flattened(across)

    result = layer.result, layer.epilogue
    return _product(
        source,
        channels,
        read.memories,
        (result[0].flattened(across), result[1].map_accesses(flattened)),
        tiling,
        instruction,
        (convolution.filter.shape[2], convolution.filter.shape[3]) if convolution.is_padded else None,
        computed=computed,
    )


def pack_filters(convolution: Convolution, tiling: BlockTiling, instruction: MatrixInstruction) -> tuple[Step, ...]:
    """Steps from filters ``[OC, IC, KH, KW]`` to ``[tiles, steps, columns, depth]``; channels vary before taps.

    Panels of integers are followed by scales and sums, for each tap if the image is padded.
    """
    channels, depth, height, width = convolution.filter.shape
    check_sums(depth * height * width, is_quantised=instruction.is_integer)
    turned: tuple[Step, ...] = (Transpose((2, 3, 1, 0)), Reshape((height * width * depth, channels)))
    packed = (*turned, *pack_columns(height * width * depth, channels, tiling, instruction))
    if not instruction.is_integer:
        return packed
    return (Quantise(0, tiling.columns, packed, (2, 3) if convolution.is_padded else ()),)


def weight_product(product: ProductLayer, tiling: BlockTiling, instruction: MatrixInstruction) -> ImplicitProduct:
    """The product of a layer by a weight; extends the packing of the weight.

    Raises:
        RejectionError: if the layer cannot be computed so.
    """
    shape = product.shape
    check_sums(shape.depth, is_quantised=instruction.is_integer)
    index = product.weight
    packed = pack_columns(shape.depth, shape.columns, tiling, instruction)
    product.rewrite.extend_packing(index, (Quantise(1, tiling.columns, packed),) if instruction.is_integer else packed)
    axes = (_ONE, product.axes[1])
    source = PixelRows(axes, product.lhs, shape.depth, product.batches)
    return _product(source, shape.columns, product.memories, (product.result, product.epilogue), tiling, instruction)


def activation_product(product: ProductLayer, tiling: BlockTiling, instruction: MatrixInstruction) -> ImplicitProduct:
    """The product of a layer of two activations, in batches.

    Raises:
        RejectionError: if the layer cannot be computed so.
    """
    shape = product.shape
    batch, row = product.rhs_strides()
    axes = (_ONE, product.axes[1])
    source = PixelRows(axes, product.lhs, shape.depth, product.batches)
    matrix = MatrixRows(batch, row, shape.depth, shape.columns)
    result = product.result, product.epilogue
    return _product(source, shape.columns, product.memories, result, tiling, instruction, matrix=matrix)


def _product(
    source: PixelRows,
    columns: int,
    memories: tuple[int, int],
    result: tuple[Access, Epilogue],
    tiling: BlockTiling,
    instruction: MatrixInstruction,
    taps: tuple[int, int] | None = None,
    matrix: MatrixRows | None = None,
    computed: StagedRows | None = None,
) -> ImplicitProduct:
    lanes, block = lanes_for(columns), (tiling.rows, tiling.columns)
    sums = WarpSums(source.rows, columns, tiling.warp_tile, block, lanes)
    finished = FinishedResult(sums, *result)
    code = ImplicitProduct(source, columns, memories, finished, tiling, instruction, 0, matrix, computed)
    if instruction.is_integer and matrix is None:
        panels = FilterPanels(tiling.columns, code.panel, taps)
        code = replace(code, result=IntegerResult(sums, *result, source, memories, panels), trailer=panels.trailer)
    code.check()
    return code
