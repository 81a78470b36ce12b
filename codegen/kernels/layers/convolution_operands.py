"""The operands of a convolution layer: the image before the pad, the filters, and the windows along H and W."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sartor.codegen.analysis.convolution import Convolution
from sartor.codegen.ir.layer import TensorType
from sartor.codegen.ir.packing import Step
from sartor.codegen.ir.rejection import RejectionError
from sartor.codegen.kernels.layers.image_layer import ImageLayer
from sartor.codegen.kernels.loops.access import ImageStrides
from sartor.codegen.kernels.loops.tiles import Axis
from sartor.codegen.mlir.iree_compiler import ir
from sartor.codegen.mlir.operations import defining_op


@dataclass(frozen=True)
class ConvolutionOperands:
    """The operands of a convolution in memory.

    Attributes:
        memories: positions of image and filters among the buffers.
        image: strides of the image.
        axes: windows along H and W.
    """

    memories: tuple[int, int]
    image: ImageStrides
    axes: tuple[Axis, Axis]


def convolution_operands(
    layer: ImageLayer, convolution: Convolution, packing: tuple[Step, ...], *, by_planes: bool = False
) -> ConvolutionOperands:
    """The operands of a convolution layer; sets the packing of its filters.

    Args:
        layer: the layer that becomes a kernel.
        convolution: its root.
        packing: steps that pack the filters.
        by_planes: whether an image of few channels may be read in ONNX's layout.

    Raises:
        RejectionError: if the image is no activation, or the filters are no weight that only the root reads.
    """
    rewrite, root = layer.rewrite, layer.rewrite.root
    image, padding = unpadded(root.operands[0], 0.0)
    source, index = layer.argument(image), rewrite.weight_index(root.operands[1])
    if index is None or source >= len(rewrite.task.inputs):
        raise RejectionError("the image is a weight, or the filters are computed or read elsewhere too")
    rewrite.set_packing(index, packing)
    if by_planes:
        layer.read_by_planes(source)
    kind = rewrite.task.inputs[source]
    taps = convolution.filter.shape[2:]
    axes = window_axes(kind, convolution.result, taps, convolution.strides, convolution.dilations, padding)
    return ConvolutionOperands((source, len(rewrite.task.inputs) + index), layer.strides(source), axes)


def joins(convolution: Convolution) -> bool:
    """Whether each result reads exactly one pixel of the unpadded image, so that the pixels of all rows form one
    sequence."""
    return convolution.is_product and not convolution.is_padded


def window_axes(
    image: TensorType,
    result: TensorType,
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    padding: Sequence[int],
) -> tuple[Axis, Axis]:
    """Windows along H and W over an image without its padding."""
    rows, columns = (
        Axis(*numbers)
        for numbers in zip(image.shape[2:], result.shape[2:], kernel, strides, dilations, padding, strict=True)
    )
    return rows, columns


def unpadded(value: ir.Value, *fillings: float) -> tuple[ir.Value, tuple[int, int]]:
    """The image before a pad, and the pixels of padding above and left of it.

    Args:
        value: what a window reads.
        fillings: values that the padding may have.

    Raises:
        RejectionError: if it is padded in another way.
    """
    op = defining_op(value)
    if op is None or op.name != "tensor.pad":
        return value, (0, 0)
    low, high = (list(ir.DenseI64ArrayAttr(op.attributes[name])) for name in ("static_low", "static_high"))
    constant = defining_op(op.regions[0].blocks[0].operations[-1].operation.operands[0])
    if constant is None or constant.name != "arith.constant":
        raise RejectionError("the image is padded with a value that is not constant")
    around = len(op.operands) == 1 and not any((*low[:2], *high[:2]))
    if ir.FloatAttr(constant.attributes["value"]).value not in fillings or not around:
        raise RejectionError(f"the image is padded with something other than {fillings[0]}")
    return op.operands[0], (low[2], low[3])
