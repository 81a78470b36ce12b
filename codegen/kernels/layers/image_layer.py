"""A layer over images in memory, and the accesses of its kernel to them."""

from __future__ import annotations

from dataclasses import dataclass

from sartor.codegen.ir.layer import TensorType
from sartor.codegen.ir.layouts import CHANNELS_LAST, IMAGE_RANK, PLAIN_IMAGE, image_layout
from sartor.codegen.ir.rejection import RejectionError
from sartor.codegen.kernels.loops.access import (
    Access,
    ImageStrides,
    image_strides,
    plane_strides,
    row_major,
    vector_stride,
)
from sartor.codegen.kernels.loops.epilogue import Epilogue
from sartor.codegen.mlir.iree_compiler import ir
from sartor.codegen.mlir.operations import body_of
from sartor.codegen.mlir.rewriting.chain import Chain, root_of
from sartor.codegen.mlir.rewriting.initial import make_elementwise
from sartor.codegen.mlir.rewriting.rewrite import Rewrite

_BATCH, _CHANNEL, _ROW, _COLUMN = range(IMAGE_RANK)
# Images of fewer channels are mostly a network's input, which is stored in planes.
PLANES_BELOW = 4


def layout_for(image: TensorType, layout: str) -> str:
    """``layout`` if it fits an image, else the most similar layout that does."""
    channels = image.shape[_CHANNEL]
    if channels == 1:
        return PLAIN_IMAGE
    block = image_layout(layout).block
    return CHANNELS_LAST if block is not None and channels % block else layout


@dataclass
class ImageLayer:
    """A layer over images while it becomes a kernel.

    Attributes:
        rewrite: the layer in ONNX's layouts; its packings are set while operands are located.
        inputs: layout of each activation.
        output: layout of the result.
        lanes: elements of a vector.
    """

    rewrite: Rewrite
    inputs: tuple[str, ...]
    output: str
    lanes: int

    @staticmethod
    def of(rewrite: Rewrite, layout: str, lanes: int, *, in_planes: bool = False) -> ImageLayer:
        """The layer with each image in ``layout``, or in the most similar one that fits.

        Args:
            rewrite: the layer in ONNX's layouts.
            layout: of the images.
            lanes: elements of a vector.
            in_planes: whether the result is stored in ONNX's layout, whatever that of the images.

        Raises:
            RejectionError: if the result does not fit ``layout``.
        """
        task = rewrite.task
        inputs = tuple(
            layout_for(tensor, layout) if len(tensor.shape) == IMAGE_RANK else plain
            for tensor, plain in zip(task.inputs, rewrite.inputs, strict=True)
        )
        result = task.results[0]
        output = PLAIN_IMAGE if in_planes else layout
        fits = len(task.results) == 1 and len(result.shape) == IMAGE_RANK
        if not fits or (not in_planes and layout_for(result, layout) != layout):
            raise RejectionError(f"the result does not fit the layout {layout}")
        if (root := root_of(rewrite.function)) is not None:
            make_elementwise(root)
        return ImageLayer(rewrite, inputs, output, lanes)

    @property
    def epilogue(self) -> Epilogue:
        """The ops around the root.

        Raises:
            RejectionError: if they cannot be emitted on vectors, or the layer has further ops.
        """
        return self.epilogue_of(self.rewrite.chain)

    def epilogue_of(self, chain: Chain) -> Epilogue:
        """The ops around the root of a chain, which has to be the entire layer.

        Raises:
            RejectionError: if they cannot be emitted on vectors, or the layer has further ops.
        """
        self.check_is_all(chain)
        return Epilogue.of(chain, self.locate)

    def check_is_all(self, chain: Chain) -> None:
        """Check that a chain is the entire layer.

        Raises:
            RejectionError: if it is not.
        """
        returned = list(body_of(self.rewrite.function).operations)[-1].operation.operands
        if list(returned) != [chain.result]:
            raise RejectionError("the layer has more than a root and elementwise ops after it")

    @property
    def result(self) -> Access:
        """The access by which the result is stored."""
        arguments = len(body_of(self.rewrite.function).arguments)
        strides = image_strides(self.rewrite.task.results[0], self.output)
        return Access(arguments, strides.batch, strides.row, strides.column, vector_stride(strides, self.lanes))

    def argument(self, value: ir.Value) -> int:
        """Position of a value among the function's arguments.

        Raises:
            RejectionError: if it is none.
        """
        arguments = list(body_of(self.rewrite.function).arguments)
        if value not in arguments:
            raise RejectionError("an operand is computed in the layer, but not by its chain")
        return arguments.index(value)

    def read_by_planes(self, argument: int) -> None:
        """Read an image of few channels in ONNX's layout, if it has a single use: a contraction reads single elements,
        so channels need not be adjacent."""
        value = list(body_of(self.rewrite.function).arguments)[argument]
        if self.rewrite.task.inputs[argument].shape[_CHANNEL] < PLANES_BELOW and len(list(value.uses)) == 1:
            self.inputs = tuple(
                PLAIN_IMAGE if index == argument else input_ for index, input_ in enumerate(self.inputs)
            )

    def strides(self, argument: int) -> ImageStrides:
        """Strides of an image among the inputs."""
        image, layout = self.rewrite.task.inputs[argument], self.inputs[argument]
        if layout == PLAIN_IMAGE and image.shape[_CHANNEL] > 1:
            return plane_strides(image)
        return image_strides(image, layout)

    def locate(self, value: ir.Value, indexing: ir.AffineMap) -> Access:
        """The access to an argument, given the map from the result's dimensions to its own.

        Raises:
            RejectionError: if ``value`` is no argument, or its channels are not adjacent.
        """
        argument = self.argument(value)
        task = self.rewrite.task
        if argument < len(task.inputs):
            tensor, layout = task.inputs[argument], self.inputs[argument]
        else:
            tensor, layout = self._weight(argument - len(task.inputs))
        if len(tensor.shape) == IMAGE_RANK:
            return _image_access(argument, image_strides(tensor, layout), indexing, self.lanes)
        return _plain_access(argument, tensor, indexing, self.lanes)

    def _weight(self, index: int) -> tuple[TensorType, str]:
        """Type and layout of a weight that an elementwise op reads; an image is packed like the result."""
        weight = self.rewrite.task.weights[index]
        if len(weight.shape) != IMAGE_RANK:
            return weight, PLAIN_IMAGE
        layout = layout_for(weight, self.output)
        self.rewrite.set_packing(index, image_layout(layout).packing(weight).steps)
        return weight, layout


def _image_access(argument: int, strides: ImageStrides, indexing: ir.AffineMap, lanes: int) -> Access:
    steps = {_BATCH: strides.batch, _ROW: strides.row, _COLUMN: strides.column}
    walked = {_BATCH: 0, _ROW: 0, _COLUMN: 0}
    vector = None
    for axis, expression in enumerate(indexing.results):
        if not isinstance(expression, ir.AffineDimExpr):
            continue
        if expression.position != axis:
            raise RejectionError("an elementwise op transposes its operand")
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
        raise RejectionError("an operand's channels are not adjacent")
    vector = lanes if walked[_CHANNEL] else None
    return Access(argument, walked[_BATCH], walked[_ROW], walked[_COLUMN], vector)
