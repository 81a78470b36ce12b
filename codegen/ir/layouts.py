"""Layouts of image tensors, as a rearrangement of ONNX's ``[N, C, H, W]``.

``nchw`` is ONNX's own, ``nhwc`` puts channels last, ``nchw16c`` splits them into blocks of 16 innermost (NeoCPU,
section III-B). Tensors of another rank have the one layout ``nd``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from sartor.codegen.ir.layer import TensorType
from sartor.codegen.ir.packing import Packing, Reshape, Transpose
from sartor.codegen.ir.rejection import RejectionError

IMAGE_RANK = 4
PLAIN_IMAGE = "nchw"
PLAIN = "nd"
CHANNELS_LAST = "nhwc"


@dataclass(frozen=True)
class ImageLayout:
    """A layout of images.

    Attributes:
        name: as it appears in a schema.
        order: for each physical dimension the ONNX dimension it holds.
        block: channels per innermost block, or None.
    """

    name: str
    order: tuple[int, int, int, int]
    block: int | None = None

    def physical(self, image: TensorType) -> TensorType:
        """Type of ``image`` as it lies in memory.

        Raises:
            RejectionError: if the channels do not divide into blocks.
        """
        return self.packing(image).type_of(image)

    def packing(self, image: TensorType) -> Packing:
        """Steps from ONNX's layout to this one.

        Raises:
            RejectionError: if the channels do not divide into blocks.
        """
        if self.block is None:
            return Packing(() if self.order == (0, 1, 2, 3) else (Transpose(self.order),))
        batch, channels, height, width = image.shape
        if channels % self.block:
            raise RejectionError(f"{channels} channels do not divide into blocks of {self.block}")
        split = (batch, channels // self.block, self.block, height, width)
        return Packing((Reshape(split), Transpose((0, 1, 3, 4, 2))))


NCHW = ImageLayout(PLAIN_IMAGE, (0, 1, 2, 3))
NHWC = ImageLayout(CHANNELS_LAST, (0, 2, 3, 1))


def image_layout(name: str) -> ImageLayout:
    """The layout called ``name``.

    Raises:
        RejectionError: for an unknown name.
    """
    if name == PLAIN_IMAGE:
        return NCHW
    if name == CHANNELS_LAST:
        return NHWC
    match = re.fullmatch(r"nchw(\d+)c", name)
    if match is None:
        raise RejectionError(f"there is no image layout '{name}'")
    return ImageLayout(name, (0, 1, 2, 3), int(match.group(1)))


def in_layout(logical: TensorType, layout: str) -> TensorType:
    """Type in memory of a tensor of type ``logical`` in a layout.

    Raises:
        RejectionError: if the layout does not fit the tensor.
    """
    return layout_packing(logical, layout).type_of(logical)


def layout_packing(logical: TensorType, layout: str) -> Packing:
    """Steps from ONNX's layout of a tensor to another.

    Raises:
        RejectionError: if the layout does not fit the tensor.
    """
    if layout == PLAIN:
        return Packing()
    if len(logical.shape) != IMAGE_RANK:
        raise RejectionError(f"layout {layout} needs an image, not {logical}")
    return image_layout(layout).packing(logical)


def plain_layout(logical: TensorType) -> str:
    """The name of ONNX's own layout for a tensor."""
    return PLAIN_IMAGE if len(logical.shape) == IMAGE_RANK else PLAIN


def layouts_of(tensors: Sequence[TensorType], image: str = PLAIN_IMAGE) -> tuple[str, ...]:
    """A layout for each tensor: ``image`` for images, ``nd`` for others."""
    return tuple(image if len(tensor.shape) == IMAGE_RANK else PLAIN for tensor in tensors)


def same_order(logical: TensorType, one: str, other: str) -> bool:
    """Whether the elements of a tensor have the same order in two layouts."""
    return one == other or _moved(logical, one) == _moved(logical, other)


def _moved(logical: TensorType, layout: str) -> list[tuple[int, int, int]]:
    """The order in memory as parts (axis, step along it, number of steps), outermost first; adjacent parts are
    merged."""
    parts: list[tuple[int, int, int]] = []
    for axis, step, count in _parts(logical, layout):
        if count == 1:
            continue
        if parts and parts[-1][:2] == (axis, step * count):
            count *= parts.pop()[2]
        parts.append((axis, step, count))
    return parts


def _parts(logical: TensorType, layout: str) -> list[tuple[int, int, int]]:
    if layout == PLAIN:
        return [(axis, 1, size) for axis, size in enumerate(logical.shape)]
    chosen = image_layout(layout)
    block = chosen.block or 1
    parts = [
        (axis, block, logical.shape[axis] // block) if axis == 1 else (axis, 1, logical.shape[axis])
        for axis in chosen.order
    ]
    return [*parts, (1, 1, block)]
