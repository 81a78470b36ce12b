"""A convolution in groups as several layers: the image is split into parts, each part convolved, the results
concatenated.

A part has as many groups as fill a vector. Its convolution has no groups, because kernels exist for those; its filter
is zero between channels of different groups. That takes as many times the operations as a part has groups.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from sartor.codegen.ir.layer import LayerKind, Task, TensorType
from sartor.codegen.ir.layouts import IMAGE_RANK
from sartor.codegen.subgraphs.fusion import follow, task_of
from sartor.codegen.subgraphs.grouped import Sliding, narrowed

# With more groups in a part, products with zero would cost more than a kernel gains.
_MOST_GROUPS_OF_A_PART = 8


def groups_of_a_part(sliding: Sliding, lanes: int) -> int | None:
    """The fewest groups whose input and output channels fill vectors of ``lanes``; None if a part would have too
    many."""
    groups, after, before, *_ = sliding.filter.shape
    for count in range(1, min(groups // 2, _MOST_GROUPS_OF_A_PART) + 1):
        if groups % count == 0 and (count * before) % lanes == 0 and (count * after) % lanes == 0:
            return count
    return None


def parts_task(sliding: Sliding, parts: int) -> Task:
    """A task that splits the image into ``parts`` images of equally many channels."""
    image = sliding.image
    batch, channels, height, width = image.shape
    part = replace(image, shape=(batch, channels // parts, height, width))
    types, names = ", ".join([str(part)] * parts), [f"%part{index}" for index in range(parts)]
    lines = [
        f"  {name} = tensor.extract_slice %arg0[0, {index * part.shape[1]}, 0, 0] {list(part.shape)} [1, 1, 1, 1]"
        f" : {image} to {part}"
        for index, name in enumerate(names)
    ]
    head = f"util.func public @layer(%arg0: {image}) -> ({types}) {{"
    text = "\n".join([head, *lines, f"  util.return {', '.join(names)} : {types}", "}"])
    return task_of(LayerKind.TOLERANT, text, (image,), (), (part,) * parts)


def part_task(sliding: Sliding, parts: int) -> Task:
    """A task for the dense convolution of one part, followed by the tail if that treats each channel by itself.

    Its weights are the part's dense filter, ``[OC, IC, KH, KW]``, and its part of the bias.
    """
    after = sliding.result.shape[1] // parts
    own = sliding.with_channels(sliding.image.shape[1] // parts, after)
    filters, result = replace(own.filter, shape=own.filter.shape[1:]), own.result
    bias = None if sliding.bias is None else replace(result, shape=(after,))
    arguments = "" if bias is None else f", %bias: {bias}"
    text = f"""util.func public @layer(%arg0: {own.image}, %filters: {filters}{arguments}) -> {result} {{
{padding(own)}
{initial(result, bias)}
  %result = linalg.conv_2d_nchw_fchw {{
      dilations = dense<{list(own.dilations)}> : vector<2xi64>, strides = dense<{list(own.strides)}> : vector<2xi64>}}
      ins({padded_name(own)}, %filters : {own.padded}, {filters}) outs(%initial : {result}) -> {result}
  util.return %result : {result}
}}"""
    weights = (filters, *([] if bias is None else [bias]))
    core = task_of(LayerKind.CONVOLUTION, text, (own.image,), weights, (result,))
    tail = narrow_tail(sliding, parts)
    return core if tail is None else follow(core, tail)


def narrow_tail(sliding: Sliding, parts: int) -> Task | None:
    """The tail over the channels of one part; None if there is no tail, or it needs all channels."""
    return None if sliding.tail is None else narrowed(sliding.tail, sliding.result.shape[1] // parts)


def join_task(sliding: Sliding, parts: int) -> Task:
    """A task that concatenates the results of the parts, followed by the tail unless the parts compute it."""
    result = sliding.result
    batch, channels, *pixels = result.shape
    part = replace(result, shape=(batch, channels // parts, *pixels))
    names = [f"%part{index}" for index in range(parts)]
    text = f"""util.func public @layer({", ".join(f"{name}: {part}" for name in names)}) -> {result} {{
  %result = tensor.concat dim(1) {", ".join(names)} : ({", ".join([str(part)] * parts)}) -> {result}
  util.return %result : {result}
}}"""
    core = task_of(LayerKind.TOLERANT, text, (part,) * parts, (), (result,))
    if sliding.tail is None or narrow_tail(sliding, parts) is not None:
        return core
    return follow(core, sliding.tail)


def dense_filters(filters: np.ndarray, parts: int) -> list[np.ndarray]:
    """The dense filter of each part, ``[OC, IC, KH, KW]`` with zeros between groups.

    Args:
        filters: ``[G, OC / G, IC / G, KH, KW]``.
        parts: how many there are.
    """
    groups, after, before, *kernel = filters.shape
    count = groups // parts
    dense = np.zeros((parts, count, after, count, before, *kernel), filters.dtype)
    for index in range(count):
        dense[:, index, :, index] = filters.reshape(parts, count, after, before, *kernel)[:, index]
    return list(dense.reshape(parts, count * after, count * before, *kernel))


def padding(sliding: Sliding) -> str:
    """MLIR that pads ``%arg0`` with zeros; empty if there is no padding."""
    image, padded = sliding.image, sliding.padded
    if padded == image:
        return ""
    (above, below), (left, right) = sliding.pads
    return f"""  %padding = arith.constant 0.0 : {image.dtype}
  %padded = tensor.pad %arg0 low[0, 0, {above}, {left}] high[0, 0, {below}, {right}] {{
  ^bb0(%n: index, %c: index, %h: index, %w: index):
    tensor.yield %padding : {image.dtype}
  }} : {image} to {padded}"""


def padded_name(sliding: Sliding) -> str:
    """Name of the value that ``padding`` defines."""
    return "%arg0" if sliding.padded == sliding.image else "%padded"


def initial(result: TensorType, bias: TensorType | None) -> str:
    """MLIR that defines ``%initial``, the value that sums start from: ``%bias`` of each channel, or zero."""
    empty = f"  %room0 = tensor.empty() : {result}"
    if bias is None:
        return f"""{empty}
  %zero = arith.constant 0.0 : {result.dtype}
  %initial = linalg.fill ins(%zero : {result.dtype}) outs(%room0 : {result}) -> {result}"""
    channels = 1 if len(result.shape) == IMAGE_RANK else 0
    dimensions = [axis for axis in range(len(result.shape)) if axis != channels]
    return f"""{empty}
  %initial = linalg.broadcast ins(%bias : {bias}) outs(%room0 : {result}) dimensions = {dimensions}"""
