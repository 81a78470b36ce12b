"""Layouts of image tensors, as a rearrangement of ONNX's ``[N, C, H, W]``.

``nchw`` is ONNX's own, ``nhwc`` puts channels last, ``nchw16c`` splits them into blocks of 16 innermost (NeoCPU,
section III-B). Tensors of another rank have the one layout ``nd``.

A *form* is a layout and, where it is not the tensor's own, the element type before it: ``bf16@nhwc``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from sartor.codegen.layer import TensorType
from sartor.codegen.packing import Packing, Reshape, Round, Transpose

IMAGE_RANK = 4
PLAIN_IMAGE = "nchw"
PLAIN = "nd"
CHANNELS_LAST = "nhwc"
_AT = "@"

QUANTISED = "i8"
"""Numbers of this type stand for ``scale * (number - zero point)``."""

RANGE = TensorType((4,), "f32")
"""What code is told of a quantised tensor: scale, zero point, inverse of the scale, and 0."""


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
            ValueError: if the channels do not divide into blocks.
        """
        return self.packing(image).type_of(image)

    def packing(self, image: TensorType) -> Packing:
        """Steps from ONNX's layout to this one.

        Raises:
            ValueError: if the channels do not divide into blocks.
        """
        if self.block is None:
            return Packing(() if self.order == (0, 1, 2, 3) else (Transpose(self.order),))
        batch, channels, height, width = image.shape
        if channels % self.block:
            raise ValueError(f"{channels} channels do not divide into blocks of {self.block}")
        split = (batch, channels // self.block, self.block, height, width)
        return Packing((Reshape(split), Transpose((0, 1, 3, 4, 2))))


NCHW = ImageLayout(PLAIN_IMAGE, (0, 1, 2, 3))
NHWC = ImageLayout(CHANNELS_LAST, (0, 2, 3, 1))


def image_layout(name: str) -> ImageLayout:
    """The layout called ``name``.

    Raises:
        ValueError: for an unknown name.
    """
    if name == PLAIN_IMAGE:
        return NCHW
    if name == CHANNELS_LAST:
        return NHWC
    match = re.fullmatch(r"nchw(\d+)c", name)
    if match is None:
        raise ValueError(f"there is no image layout '{name}'")
    return ImageLayout(name, (0, 1, 2, 3), int(match.group(1)))


def form_of(layout: str, dtype: str | None) -> str:
    """The form of tensors in ``layout``, stored as ``dtype``; None for their own element type."""
    return layout if dtype is None else f"{dtype}{_AT}{layout}"


def split_form(form: str) -> tuple[str | None, str]:
    """Element type of a form, None for the tensor's own, and its layout."""
    dtype, at, layout = form.rpartition(_AT)
    return dtype if at else None, layout


def stored_as(form: str, dtype: str) -> str:
    """The form of the same layout with elements of type ``dtype``."""
    return form_of(split_form(form)[1], dtype)


def quantised(forms: Iterable[str]) -> list[int]:
    """Positions of the forms whose numbers stand for others by a scale and a zero point."""
    return [index for index, form in enumerate(forms) if split_form(form)[0] == QUANTISED]


def physical_type(logical: TensorType, form: str) -> TensorType:
    """Type in memory of a tensor of ONNX type ``logical`` in ``form``.

    Raises:
        ValueError: if the layout does not fit the tensor.
    """
    dtype, layout = split_form(form)
    if dtype is not None:
        logical = replace(logical, dtype=dtype)
    if layout == PLAIN:
        return logical
    if len(logical.shape) != IMAGE_RANK:
        raise ValueError(f"layout {layout} needs an image, not {logical}")
    return image_layout(layout).physical(logical)


def form_packing(logical: TensorType, form: str) -> Packing:
    """Steps from a tensor of ONNX type ``logical`` to how it lies in memory in ``form``; quantising is none of them."""
    dtype, layout = split_form(form)
    steps = () if layout == PLAIN else image_layout(layout).packing(logical).steps
    return Packing(steps if dtype in (None, QUANTISED) else (*steps, Round(dtype)))


def plain_layout(logical: TensorType) -> str:
    """The name of ONNX's own layout for a tensor."""
    return PLAIN_IMAGE if len(logical.shape) == IMAGE_RANK else PLAIN


def same_bytes(logical: TensorType, one: str, other: str) -> bool:
    """Whether two forms of a tensor have the same bytes, so that an adapt between them is a reshape."""
    (dtype, layout), (other_dtype, other_layout) = split_form(one), split_form(other)
    return one == other or (dtype == other_dtype and _moved(logical, layout) == _moved(logical, other_layout))


def _moved(logical: TensorType, layout: str) -> list[tuple[int, int, int]]:
    """How a tensor lies in memory: axis, step along it and number of steps of each part, adjacent parts joined."""
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


def with_shape(tensor: TensorType, shape: tuple[int, ...]) -> TensorType:
    """The same element type in another shape."""
    return replace(tensor, shape=shape)
