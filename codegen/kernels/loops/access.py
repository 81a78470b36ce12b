"""Strides by which a kernel's loops access memory."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sartor.codegen.ir.layer import TensorType
from sartor.codegen.ir.layouts import image_layout
from sartor.codegen.ir.rejection import RejectionError


@dataclass(frozen=True)
class Access:
    """Distances in elements between what neighbouring iterations read or write.

    Attributes:
        memory: position among the kernel's buffers.
        batch: from one batch to the next.
        row: from one row to the next.
        column: from one column to the next.
        vector: from one vector of channels to the next, channels of a vector being adjacent; None where all channels
            share one element.
        base: offset of the first element.
        is_local: whether the memory holds only the rows that are being computed, from the first of them on.
    """

    memory: int
    batch: int
    row: int
    column: int
    vector: int | None
    base: int = 0
    is_local: bool = False

    def from_channel(self, channel: int, lanes: int) -> Access:
        """The access from ``channel`` on, which may lie within a vector only if vectors are adjacent."""
        if self.vector is None:
            return self
        vectors, rest = divmod(channel, lanes)
        return replace(self, base=self.base + vectors * self.vector + rest)

    def flattened(self, columns: int) -> Access:
        """The access with all rows, of ``columns`` columns each, as one row.

        Raises:
            RejectionError: if the rows are not adjacent.
        """
        if self.row != columns * self.column:
            raise RejectionError("the ops after the root address rows and columns separately")
        return replace(self, row=0)

    def split(self, columns: int) -> Access:
        """The access with its only row split into rows of ``columns`` columns."""
        return replace(self, row=columns * self.column)


@dataclass(frozen=True)
class ImageStrides:
    """Distances in elements in an image: ``[N, C, H, W]`` in some layout with runs of ``block`` adjacent channels.

    Attributes:
        batch: between images.
        row: between rows.
        column: between pixels.
        block: adjacent channels.
        blocks: between runs of channels.
    """

    batch: int
    row: int
    column: int
    block: int
    blocks: int


def image_strides(image: TensorType, layout: str) -> ImageStrides:
    """Strides of an image ``[N, C, H, W]`` as it lies in ``layout``.

    Raises:
        RejectionError: if neighbouring channels are not adjacent in that layout, or it does not fit.
    """
    _, channels, height, width = image.shape
    chosen = image_layout(layout)
    if chosen.block is not None:
        block, per_image = chosen.block, channels * height * width
        return ImageStrides(per_image, width * block, block, block, height * width * block)
    if chosen.order[-1] != 1 and channels > 1:
        raise RejectionError(f"channels are not adjacent in {layout}")
    return ImageStrides(height * width * channels, width * channels, channels, channels, channels)


def plane_strides(image: TensorType) -> ImageStrides:
    """Strides of an image as ONNX has it, channel by channel: runs of one."""
    _, channels, height, width = image.shape
    return ImageStrides(channels * height * width, width, 1, 1, height * width)


def vector_stride(strides: ImageStrides, lanes: int) -> int:
    """Distance between vectors of ``lanes`` channels.

    Raises:
        RejectionError: if a vector would span two blocks.
    """
    if strides.blocks == strides.block:
        return lanes
    if strides.block != lanes:
        raise RejectionError(f"blocks of {strides.block} channels do not match vectors of {lanes}")
    return strides.blocks


def row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides of a tensor whose last dimension is adjacent."""
    strides = [1] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * shape[axis + 1]
    return tuple(strides)
