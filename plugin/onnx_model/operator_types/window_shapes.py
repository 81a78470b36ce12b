"""Shapes of the results of ONNX Runtime's convolutions and poolings, also of images with channels last or in blocks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sartor.onnx_model.operator_types.operands import Operands, Rule, Shape, Size, standard

_WINDOW = ("auto_pad", "dilations", "kernel_shape", "pads", "strides")
_POOL = (*_WINDOW[:1], *_WINDOW[2:], "ceil_mode")


def _attributes(operands: Operands, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: operands.attribute(name) for name in names}


def first(shape: Shape) -> Shape:
    """The shape of an image [N, spatial…, C] with channels first."""
    return None if shape is None else [shape[0], shape[-1], *shape[1:-1]]


def _last(shape: Shape) -> Shape:
    return None if shape is None else [shape[0], *shape[2:], shape[1]]


def _conv(*, weight: int = 1, is_last: bool = False, filter_is_last: bool = False) -> Rule:
    """The rule of a convolution.

    Args:
        weight: index of the filter.
        is_last: whether channels are last; if not, an attribute ``channels_last`` may say so.
        filter_is_last: whether those of the filter are too.
    """

    def rule(operands: Operands) -> list[Shape]:
        image, filters = operands.shape(0), operands.shape(weight)
        last = is_last or bool(operands.attribute("channels_last"))
        sides = [first(image) if last else image, first(filters) if filter_is_last else filters]
        result = standard("Conv", sides, {**_attributes(operands, _WINDOW), "group": operands.attribute("group")})
        return [_last(result) if last else result]

    return rule


def _pool(operator: str, *, is_last: bool = False) -> Rule:
    def rule(operands: Operands) -> list[Shape]:
        image = operands.shape(0)
        last = is_last or bool(operands.attribute("channels_last"))
        names = () if operator.startswith("Global") else (*_POOL, *(("dilations",) if operator == "MaxPool" else ()))
        result = standard(operator, [first(image) if last else image], _attributes(operands, names))
        return [_last(result) if last else result]

    return rule


def _transposed(operands: Operands) -> list[Shape]:
    pads = operands.values(2)
    if pads is None and operands.type(2) is not None:
        return [None]
    names = ("auto_pad", "dilations", "group", "kernel_shape", "output_padding", "output_shape", "strides")
    given = _attributes(operands, names)
    if pads is not None and pads.size:
        given["pads"] = [int(pad) for pad in pads.reshape(-1)]
    return [standard("ConvTranspose", [operands.shape(0), operands.shape(1)], given)]


WINDOW_SHAPES: Mapping[str, Rule] = {
    "ConvTransposeWithDynamicPads": _transposed,
    "FusedConv": _conv(),
    "NhwcConv": _conv(is_last=True, filter_is_last=True),
    "NhwcFusedConv": _conv(is_last=True),
    "NhwcMaxPool": _pool("MaxPool", is_last=True),
    "QLinearAveragePool": _pool("AveragePool"),
    "QLinearConv": _conv(weight=3),
    "QLinearGlobalAveragePool": _pool("GlobalAveragePool"),
}


def _blocked_conv(operands: Operands) -> list[Shape]:
    """An image has as many channels as the filter reads, whatever fills its last block."""
    image, filters = operands.shape(0), operands.shape(1)
    if not image or not filters or not isinstance(filters[1], int):
        return [None]
    groups = int(operands.attribute("group", 1))
    image[1] = filters[1] * groups
    return [standard("Conv", [image, filters], {**_attributes(operands, _WINDOW), "group": groups})]


def _upsampled(operands: Operands) -> list[Shape]:
    shape, scales = operands.shape(0), operands.attribute("scales")
    if not shape:
        return [None]
    return [[size * int(scale) if isinstance(size, int) else None for size, scale in zip(shape, scales, strict=True)]]


def _reordered(operands: Operands) -> list[Shape]:
    """Of a ReorderInput, whose channels may be last; they fill whole blocks in its result."""
    shape = operands.shape(0)
    return [first(shape) if operands.attribute("channels_last") else shape]


def _ordered(operands: Operands) -> list[Shape]:
    """Of a ReorderOutput, which drops what fills the last block."""
    shape = operands.shape(0)
    if not shape:
        return [None]
    result: list[Size] = [shape[0], int(operands.attribute("channels")), *shape[2:]]
    return [_last(result) if operands.attribute("channels_last") else result]


BLOCKED_SHAPES: Mapping[str, Rule] = {
    "AveragePool": _pool("AveragePool"),
    "Conv": _blocked_conv,
    "GlobalAveragePool": _pool("GlobalAveragePool"),
    "GlobalMaxPool": _pool("GlobalMaxPool"),
    "MaxPool": _pool("MaxPool"),
    "ReorderInput": _reordered,
    "ReorderOutput": _ordered,
    "Upsample": _upsampled,
}
