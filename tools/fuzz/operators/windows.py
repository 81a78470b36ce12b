"""Convolutions, poolings and resizes of one- and two-dimensional images, with all kinds of padding."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tools.fuzz.graph import Graph, UnfitError, Value

_CHANNELS = (1, 2, 3, 5, 8, 12, 16, 17, 24, 32, 33)
_DILATED_AVERAGES = 19
"""First opset whose AveragePool takes dilations."""


def window(graph: Graph, sizes: tuple[int, ...], *, dilates: bool = True, narrow: bool = False) -> dict[str, Any]:
    """Return attributes of a window that fits into an image at least once, padding included.

    Args:
        graph: source of random numbers.
        sizes: image sizes in pixels.
        dilates: whether dilations above 1 are allowed.
        narrow: whether padding must be smaller than the window, as for poolings.
    """
    kernel, strides, dilations, begins, ends = [], [], [], [], []
    fits = True
    for size in sizes:
        extent = graph.one_of((1, 1, 2, 3, 3, 3, 4, 5, 7))
        dilation = graph.one_of((1, 1, 1, 2, 3)) if dilates else 1
        reach = (extent - 1) * dilation + 1
        most = min(extent if narrow else reach, 5) - 1
        begin, end = (0, 0) if graph.chance(0.3) else (graph.integer(0, most), graph.integer(0, most))
        if graph.chance(0.4):
            end = begin
        if size + begin + end < reach:
            extent, dilation, begin, end = min(extent, size), 1, 0, 0
        kernel.append(extent)
        strides.append(graph.one_of((1, 1, 1, 2, 2, 3)))
        dilations.append(dilation)
        begins.append(begin)
        ends.append(end)
        fits &= extent <= size
    found: dict[str, Any] = {"kernel_shape": kernel, "strides": strides}
    if max(dilations) > 1:
        found["dilations"] = dilations
    if max(dilations) == 1 and graph.chance(0.15):
        modes = ("SAME_UPPER", "SAME_LOWER", "VALID")
        return found | {"auto_pad": graph.one_of(modes if fits else modes[:-1])}
    return found | {"pads": [*begins, *ends]}


def groups_of(graph: Graph, channels: int) -> int:
    """Return a random number of groups for a convolution; 1 and one group per channel are most likely."""
    if graph.chance(0.55):
        return 1
    if graph.chance(0.5):
        return channels
    return graph.one_of([index for index in range(1, channels + 1) if channels % index == 0])


def convolution(graph: Graph) -> None:
    """Add a convolution, with an optional bias and activation."""
    image = graph.image(3, 4, 4, 4)
    channels = image.shape[1]
    groups = groups_of(graph, channels)
    filters = groups * max(1, graph.one_of(_CHANNELS) // groups)
    attributes = window(graph, image.shape[2:])
    inner = channels // groups
    scale = 1 / math.sqrt(inner * math.prod(attributes["kernel_shape"]))
    weight = graph.weight(filters, inner, *attributes["kernel_shape"], scale=scale)
    bias = graph.weight(filters, scale=0.5) if graph.chance(0.6) else None
    result = graph.op("Conv", image, weight, *([bias] if bias else []), group=groups, **attributes)
    if graph.chance(0.4):
        graph.op(graph.one_of(("Relu", "Relu", "Sigmoid", "HardSwish", "Tanh")), result, like=result)


def transposed_convolution(graph: Graph) -> None:
    """Add a transposed convolution."""
    image = graph.image(3, 4, 4)
    channels = image.shape[1]
    groups = groups_of(graph, channels)
    attributes = window(graph, image.shape[2:])
    attributes.pop("auto_pad", None)
    strides, dilations = attributes["strides"], attributes.get("dilations", [1] * (image.rank - 2))
    attributes["output_padding"] = [graph.integer(0, stride - 1) for stride in strides]
    reaches = [
        (extent - 1) * dilation + 1 for extent, dilation in zip(attributes["kernel_shape"], dilations, strict=True)
    ]
    attributes["pads"] = [graph.integer(0, (reach - 1) // 2) for reach in (*reaches, *reaches)]
    inner = max(1, graph.one_of(_CHANNELS) // groups)
    scale = 1 / math.sqrt(channels // groups * math.prod(attributes["kernel_shape"]))
    weight = graph.weight(channels, inner, *attributes["kernel_shape"], scale=scale)
    bias = [graph.weight(inner * groups, scale=0.5)] if graph.chance(0.5) else []
    graph.op("ConvTranspose", image, weight, *bias, group=groups, **attributes)


def pooling(graph: Graph) -> None:
    """Add a pooling by maximum or by average."""
    image = graph.image(3, 4, 4)
    largest = graph.chance(0.5)
    attributes = window(graph, image.shape[2:], dilates=largest or graph.opset >= _DILATED_AVERAGES, narrow=True)
    if not all_read(image.shape[2:], attributes):
        attributes = {"kernel_shape": [1] * (image.rank - 2), "strides": attributes["strides"]}
    if "pads" in attributes and graph.chance(0.25) and _begin_inside(image.shape[2:], attributes):
        attributes["ceil_mode"] = 1
    if largest:
        graph.op("MaxPool", image, exact=True, **attributes)
    else:
        graph.op("AveragePool", image, count_include_pad=graph.integer(0, 1), **attributes)


def all_read(sizes: Sequence[int], attributes: Mapping[str, Any]) -> bool:
    """Whether each window reads an element: the largest of padding alone is the lowest float, -inf or not a number."""
    pads, dilations = attributes.get("pads", ()), attributes.get("dilations", ())
    if not any(pads) or not dilations:
        return True
    for axis, (size, kernel, dilation) in enumerate(zip(sizes, attributes["kernel_shape"], dilations, strict=True)):
        begin, end = pads[axis], pads[axis + len(sizes)]
        last = size + end - (kernel - 1) * dilation
        for start in range(-begin, last, attributes["strides"][axis]):
            if not any(0 <= start + tap * dilation < size for tap in range(kernel)):
                return False
    return True


def _begin_inside(sizes: Sequence[int], attributes: Mapping[str, Any]) -> bool:
    """Whether no window begins after the input if their number is rounded up: ONNX's shape inference counts those."""
    for axis, (size, kernel) in enumerate(zip(sizes, attributes["kernel_shape"], strict=True)):
        begin, end = attributes["pads"][axis], attributes["pads"][axis + len(sizes)]
        stride = attributes.get("strides", [1] * len(sizes))[axis]
        extent = (kernel - 1) * attributes.get("dilations", [1] * len(sizes))[axis] + 1
        if -(-(begin + size + end - extent) // stride) * stride >= begin + size:
            return False
    return True


def global_pooling(graph: Graph) -> None:
    """Add a pooling over the whole image."""
    kind = graph.one_of(("GlobalAveragePool", "GlobalMaxPool"))
    graph.op(kind, graph.image(3, 4), exact=kind == "GlobalMaxPool")


def residual_block(graph: Graph) -> None:
    """Add two convolutions that keep the image's size, and a residual addition."""
    image = graph.image(4)
    channels = image.shape[1]
    scale = 1 / math.sqrt(9 * channels)
    value: Value = image
    for _ in range(2):
        value = graph.op("Conv", value, graph.weight(channels, channels, 3, 3, scale=scale), pads=[1] * 4)
        value = graph.op("Relu", value)
    graph.op("Add", value, image)


def separable_block(graph: Graph) -> None:
    """Add a depthwise and a pointwise convolution, as in mobile networks."""
    image = graph.image(4)
    channels = image.shape[1]
    attributes = window(graph, image.shape[2:], dilates=False)
    weight = graph.weight(channels, 1, *attributes["kernel_shape"], scale=0.4)
    inner = graph.op("Conv", image, weight, graph.weight(channels, scale=0.5), group=channels, **attributes)
    if graph.chance(0.7):
        bounds = (graph.weight(low=0.0, scale=0.0), graph.weight(low=6.0, scale=0.0))
        inner = graph.op("Clip", inner, *bounds)
    filters = graph.one_of(_CHANNELS)
    graph.op("Conv", inner, graph.weight(filters, channels, 1, 1, scale=1 / math.sqrt(channels)))


def wide_groups(graph: Graph) -> None:
    """Add a grouped convolution that is large enough to be computed in parts."""
    groups = graph.one_of((2, 3, 4))
    channels = groups * graph.one_of((8, 16, 17))
    image = graph.input((1, channels, graph.integer(6, 10), graph.integer(6, 10)))
    weight = graph.weight(channels, channels // groups, 3, 3, scale=1 / math.sqrt(9 * channels / groups))
    result = graph.op("Conv", image, weight, graph.weight(channels, scale=0.5), pads=[1] * 4, group=groups)
    if graph.chance(0.5):
        graph.op("Relu", result)


def excitation(graph: Graph) -> None:
    """Add a squeeze-and-excitation block."""
    image = graph.image(4)
    channels, inner = image.shape[1], graph.one_of((1, 3, 8))
    mean = graph.op("GlobalAveragePool", image)
    small = graph.op("Relu", graph.op("Conv", mean, graph.weight(inner, channels, 1, 1, scale=0.4)))
    gate = graph.op(
        graph.one_of(("Sigmoid", "HardSigmoid")), graph.op("Conv", small, graph.weight(channels, inner, 1, 1))
    )
    graph.op("Mul", image, gate)


def shuffled_channels(graph: Graph) -> None:
    """Add ShuffleNet's channel shuffle."""
    image = graph.image(4)
    count, channels, height, width = image.shape
    groups = graph.one_of([index for index in range(2, channels + 1) if channels % index == 0])
    split = graph.op("Reshape", image, graph.integers(count, groups, channels // groups, height, width), exact=True)
    moved = graph.op("Transpose", split, perm=[0, 2, 1, 3, 4], exact=True)
    graph.op("Reshape", moved, graph.integers(count, channels, height, width), exact=True)


def resized(graph: Graph) -> None:
    """Add a Resize."""
    image = graph.image(4)
    mode = graph.one_of(("nearest", "linear", "linear", "cubic"))
    attributes: dict[str, Any] = {
        "mode": mode,
        "coordinate_transformation_mode": graph.one_of(
            ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel")
        ),
    }
    if mode == "nearest":
        attributes["nearest_mode"] = graph.one_of(("floor", "round_prefer_floor", "ceil", "round_prefer_ceil"))
    if graph.chance(0.5):
        sizes = graph.integers(*image.shape[:2], *(graph.integer(1, 12) for _ in range(2)))
        graph.op("Resize", image, None, None, sizes, **attributes)
        return
    factors = [1.0, 1.0, *(graph.one_of((0.5, 1.0, 1.5, 2.0, 2.0, 3.0)) for _ in range(2))]
    if min(math.floor(size * factor) for size, factor in zip(image.shape, factors, strict=True)) < 1:
        raise UnfitError
    scales = graph.constant(np.array(factors, np.float32))
    graph.op("Resize", image, None, scales, **attributes)


def blocks_of_space(graph: Graph) -> None:
    """Add a SpaceToDepth or a DepthToSpace."""
    image, block = graph.image(4), graph.one_of((2, 2, 3))
    if graph.chance(0.5):
        _fits(image.shape[1] % (block * block) == 0)
        graph.op("DepthToSpace", image, blocksize=block, mode=graph.one_of(("DCR", "CRD")), exact=True)
    else:
        _fits(image.shape[2] % block == 0 and image.shape[3] % block == 0)
        graph.op("SpaceToDepth", image, blocksize=block, exact=True)


def _fits(condition: bool) -> None:
    if not condition:
        raise UnfitError
