"""A convolution layer as a contraction over images in memory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from sartor.codegen.chain import Chain, root_of
from sartor.codegen.convolution import Convolution
from sartor.codegen.draft import Draft
from sartor.codegen.initial import make_elementwise
from sartor.codegen.iree_compiler import ir
from sartor.codegen.kernels.access import Access, ImageStrides, image_strides, plane_strides, row_major, vector_stride
from sartor.codegen.kernels.contraction import Contraction, FilterStrides
from sartor.codegen.kernels.dot_packing import pack_dots
from sartor.codegen.kernels.epilogue import Epilogue
from sartor.codegen.kernels.factors import DotElement, Dots
from sartor.codegen.kernels.nest import Nest
from sartor.codegen.kernels.tiles import Axis
from sartor.codegen.kernels.tiling import Tiling
from sartor.codegen.kernels.tilings import Work, chunk, tilings
from sartor.codegen.layer import TensorType
from sartor.codegen.layouts import CHANNELS_LAST, IMAGE_RANK, PLAIN_IMAGE, image_layout
from sartor.codegen.machine import Machine
from sartor.codegen.operations import body_of, defining_op
from sartor.codegen.packing import PadTo, Reshape, Step, Transpose

_BATCH, _CHANNEL, _ROW, _COLUMN = range(IMAGE_RANK)
# Images of so few channels are mostly a network's input, which comes channel by channel.
PLANES_BELOW = 4


def layout_for(image: TensorType, layout: str) -> str:
    """``layout`` if it fits an image, else the nearest that does."""
    channels = image.shape[_CHANNEL]
    if channels == 1:
        return PLAIN_IMAGE
    block = image_layout(layout).block
    return CHANNELS_LAST if block is not None and channels % block else layout


def pack_filters(filters: TensorType, panel: int) -> tuple[Step, ...]:
    """``[OC, IC, KH, KW]`` to ``[OC / panel, KH, KW, IC, panel]``, the last panel filled up with zeros."""
    channels, depth, height, width = filters.shape
    panels = -(-channels // panel)
    return (
        PadTo((panels * panel, depth, height, width)),
        Reshape((panels, panel, depth, height, width)),
        Transpose((0, 3, 4, 2, 1)),
    )


def packed_strides(filters: TensorType, panel: int, lanes: int) -> FilterStrides:
    """Strides of what ``pack_filters`` makes."""
    _, depth, height, width = filters.shape
    column = depth * panel
    return FilterStrides(
        batch=0,
        panel=height * width * column,
        row=width * column,
        column=column,
        depth=panel,
        vector=lanes,
        padded=True,
    )


@dataclass
class ImageLayer:
    """A layer over images while it becomes a kernel.

    Attributes:
        draft: in ONNX's layouts; its packings are extended as operands ask for it.
        inputs: layout of each activation.
        output: layout of the result.
        lanes: elements of a vector.
    """

    draft: Draft
    inputs: tuple[str, ...]
    output: str
    lanes: int

    @staticmethod
    def of(draft: Draft, layout: str, lanes: int) -> ImageLayer:
        """The layer with its images in ``layout``, or what fits them.

        Raises:
            ValueError: if the result does not fit ``layout``.
        """
        task = draft.task
        inputs = tuple(
            layout_for(each, layout) if len(each.shape) == IMAGE_RANK else plain
            for each, plain in zip(task.inputs, draft.inputs, strict=True)
        )
        result = task.results[0]
        if len(task.results) != 1 or len(result.shape) != IMAGE_RANK or layout_for(result, layout) != layout:
            raise ValueError(f"the result does not fit the layout {layout}")
        if (root := root_of(draft.function)) is not None:
            make_elementwise(root)
        return ImageLayer(draft, inputs, layout, lanes)

    @property
    def epilogue(self) -> Epilogue:
        """What surrounds the root.

        Raises:
            ValueError: if it has no form on vectors, or is not all that the layer returns.
        """
        return self.epilogue_of(self.draft.chain)

    def epilogue_of(self, chain: Chain) -> Epilogue:
        """What surrounds the root of a chain, which has to be the whole layer.

        Raises:
            ValueError: if it has no form on vectors, or is not all that the layer returns.
        """
        returned = list(body_of(self.draft.function).operations)[-1].operation.operands
        if list(returned) != [chain.result]:
            raise ValueError("the layer does more than its root and what follows it elementwise")
        return Epilogue.of(chain, self.locate)

    @property
    def result(self) -> Access:
        """Where the result goes."""
        arguments = len(body_of(self.draft.function).arguments)
        strides = image_strides(self.draft.task.results[0], self.output)
        return Access(arguments, strides.batch, strides.row, strides.column, vector_stride(strides, self.lanes))

    def argument(self, value: ir.Value) -> int:
        """Position of a value among the function's arguments.

        Raises:
            ValueError: if it is none.
        """
        arguments = list(body_of(self.draft.function).arguments)
        if value not in arguments:
            raise ValueError("an operand is computed in the layer, and not by its chain")
        return arguments.index(value)

    def read_by_planes(self, argument: int) -> None:
        """Take an image of few channels as ONNX has it, if that is read in one place only: a contraction reads single
        elements, wherever they lie."""
        value = list(body_of(self.draft.function).arguments)[argument]
        if self.draft.task.inputs[argument].shape[_CHANNEL] < PLANES_BELOW and len(list(value.uses)) == 1:
            self.inputs = tuple(PLAIN_IMAGE if index == argument else each for index, each in enumerate(self.inputs))

    def strides(self, argument: int) -> ImageStrides:
        """Strides of an image among the inputs."""
        image, layout = self.draft.task.inputs[argument], self.inputs[argument]
        if layout == PLAIN_IMAGE and image.shape[_CHANNEL] > 1:
            return plane_strides(image)
        return image_strides(image, layout)

    def locate(self, value: ir.Value, indexing: ir.AffineMap) -> Access:
        """How an argument, indexed through a map from the result's dimensions, is walked through.

        Raises:
            ValueError: if it is none, or its channels are not adjacent.
        """
        argument = self.argument(value)
        task = self.draft.task
        if argument < len(task.inputs):
            tensor, layout = task.inputs[argument], self.inputs[argument]
        else:
            tensor, layout = self._weight(argument - len(task.inputs))
        if len(tensor.shape) == IMAGE_RANK:
            return _image_access(argument, image_strides(tensor, layout), indexing, self.lanes)
        return _plain_access(argument, tensor, indexing, self.lanes)

    def _weight(self, index: int) -> tuple[TensorType, str]:
        """A weight that an elementwise op reads: packed like the result where it is an image."""
        weight = self.draft.task.weights[index]
        if len(weight.shape) != IMAGE_RANK:
            return weight, PLAIN_IMAGE
        layout = layout_for(weight, self.output)
        self.draft.set_packing(index, image_layout(layout).packing(weight).steps)
        return weight, layout


def _image_access(argument: int, strides: ImageStrides, indexing: ir.AffineMap, lanes: int) -> Access:
    steps = {_BATCH: strides.batch, _ROW: strides.row, _COLUMN: strides.column}
    walked = {_BATCH: 0, _ROW: 0, _COLUMN: 0}
    vector = None
    for axis, expression in enumerate(indexing.results):
        if not isinstance(expression, ir.AffineDimExpr):
            continue
        if expression.position != axis:
            raise ValueError("an elementwise op turns its operand")
        if axis == _CHANNEL:
            vector = vector_stride(strides, lanes)
        else:
            walked[axis] = steps[axis]
    return Access(argument, walked[_BATCH], walked[_ROW], walked[_COLUMN], vector)


def _plain_access(argument: int, tensor: TensorType, indexing: ir.AffineMap, lanes: int) -> Access:
    walked = [0] * IMAGE_RANK
    for step, expression in zip(row_major(tensor.shape), indexing.results, strict=True):
        if isinstance(expression, ir.AffineDimExpr):
            walked[expression.position] = step
    if walked[_CHANNEL] not in (0, 1):
        raise ValueError("an operand's channels are not adjacent")
    vector = lanes if walked[_CHANNEL] else None
    return Access(argument, walked[_BATCH], walked[_ROW], walked[_COLUMN], vector)


@dataclass(frozen=True)
class ConvolutionOperands:
    """What a convolution reads.

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
    """The operands of a convolution layer, whose filters are packed by ``packing``.

    Args:
        layer: what becomes a kernel.
        convolution: its root.
        packing: of the filters.
        by_planes: whether an image of few channels may be read as ONNX has it.

    Raises:
        ValueError: if the image is no activation, or the filters are no weight.
    """
    draft, root = layer.draft, layer.draft.root
    image, padding = unpadded(root.operands[0], 0.0)
    source, filters = layer.argument(image), layer.argument(root.operands[1])
    index = filters - len(draft.task.inputs)
    if index < 0 or source >= len(draft.task.inputs):
        raise ValueError("the image is a weight, or the filters are computed")
    draft.set_packing(index, packing)
    if by_planes:
        layer.read_by_planes(source)
    kind = draft.task.inputs[source]
    taps = convolution.filter.shape[2:]
    axes = window_axes(kind, convolution.result, taps, convolution.strides, convolution.dilations, padding)
    return ConvolutionOperands((source, filters), layer.strides(source), axes)


def convolution_contraction(
    layer: ImageLayer, convolution: Convolution, tiling: Tiling, element: DotElement | None = None
) -> Contraction:
    """The contraction of a convolution layer; its filters are packed into panels.

    Args:
        layer: what becomes a kernel.
        convolution: its root.
        tiling: sizes.
        element: what is multiplied in groups; None for single numbers, in f32.

    Raises:
        ValueError: if the layer has no such form.
    """
    if element is None:
        contraction = rowwise_contraction(layer, convolution, tiling)
    else:
        contraction = _dot_contraction(layer, convolution, tiling, element)
    if not joins(convolution):
        return contraction
    _, _, height, width = convolution.result.shape
    return contraction.joined(chunk(height * width, tiling.columns))


def rowwise_contraction(layer: ImageLayer, convolution: Convolution, tiling: Tiling) -> Contraction:
    """The same with rows kept apart, whatever the window.

    Raises:
        ValueError: if the layer has no such form.
    """
    panel = tiling.vectors * layer.lanes
    read = convolution_operands(layer, convolution, pack_filters(convolution.filter, panel), by_planes=True)
    batches, channels, *_ = convolution.result.shape
    return Contraction(
        nest=Nest(batches, channels, *read.axes, layer.result, layer.epilogue, layer.lanes, tiling),
        depth=convolution.filter.shape[1],
        image=read.image,
        filters=packed_strides(convolution.filter, panel, layer.lanes),
        memories=read.memories,
    )


def _dot_contraction(layer: ImageLayer, convolution: Convolution, tiling: Tiling, element: DotElement) -> Contraction:
    """The same over groups of input channels."""
    packed = pack_dots(convolution.filter, tiling.vectors * layer.lanes, layer.lanes, element)
    read = convolution_operands(layer, convolution, packed.packing)
    batches, channels, *_ = convolution.result.shape
    return Contraction(
        nest=Nest(batches, channels, *read.axes, layer.result, layer.epilogue, layer.lanes, tiling),
        depth=convolution.filter.shape[1],
        image=read.image,
        filters=packed.strides,
        memories=read.memories,
        factors=Dots(element),
        meaning=packed.meaning,
    )


def joins(convolution: Convolution) -> bool:
    """Whether each result reads one pixel, and all of them lie in memory, so that rows need not be kept apart."""
    return convolution.is_product and not convolution.is_padded


def convolution_tilings(convolution: Convolution, machine: Machine, element: DotElement | None = None) -> list[Tiling]:
    """Tilings worth trying for a convolution that multiplies single channels, or groups of them, best guess first."""
    _, channels, height, width = convolution.result.shape
    _, inputs, *taps = convolution.filter.shape
    groups, prepares = (inputs, False) if element is None else (-(-inputs // element.group), element.is_quantised)
    work = Work(height, width, channels, groups * math.prod(taps), joins(convolution), prepares)
    return tilings(work, machine)


def window_axes(
    image: TensorType,
    result: TensorType,
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    padding: Sequence[int],
) -> tuple[Axis, Axis]:
    """Windows along H and W of an image without its padding."""
    rows, columns = (
        Axis(*numbers)
        for numbers in zip(image.shape[2:], result.shape[2:], kernel, strides, dilations, padding, strict=True)
    )
    return rows, columns


def unpadded(value: ir.Value, *fillings: float) -> tuple[ir.Value, tuple[int, int]]:
    """What a window reads, and how many pixels of one of ``fillings`` are above and left of it.

    Raises:
        ValueError: if it is padded with something else.
    """
    op = defining_op(value)
    if op is None or op.name != "tensor.pad":
        return value, (0, 0)
    low = list(ir.DenseI64ArrayAttr(op.attributes["static_low"]))
    constant = defining_op(op.regions[0].blocks[0].operations[-1].operation.operands[0])
    if constant is None or constant.name != "arith.constant":
        raise ValueError("the image is padded with what is no constant")
    if ir.FloatAttr(constant.attributes["value"]).value not in fillings or low[:2] != [0, 0] or len(op.operands) != 1:
        raise ValueError(f"the image is padded with something other than {fillings[0]}")
    return op.operands[0], (low[2], low[3])
