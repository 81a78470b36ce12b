"""A convolution as two layers: one gathers the patch under each output pixel, the other multiplies filters by patches.

Patches are the columns of a matrix. So the product has ONNX's layout, and fills vectors even if a group has few
channels (Chellapilla et al., 2006; Caffe's im2col).
"""

from __future__ import annotations

import math
from dataclasses import replace

from sartor.codegen.ir.layer import LayerKind, Task, TensorType
from sartor.codegen.subgraphs.fusion import follow, task_of
from sartor.codegen.subgraphs.grouped import Sliding
from sartor.codegen.subgraphs.part_children import initial, padded_name, padding

_GATHERED = "g, c, y, x, h, w"


def patches_task(sliding: Sliding) -> Task:
    """A task from the image to patches, ``[G, IC / G * KH * KW, OH * OW]``.

    Raises:
        ValueError: if there is more than one image.
    """
    groups, _, channels, *kernel = sliding.filter.shape
    batch, _, height, width = sliding.padded.shape
    if batch > 1:
        raise ValueError("a batch of images")
    rows, columns = sliding.result.shape[2:]
    (down, right), (far_down, far_right) = sliding.strides, sliding.dilations
    padded = sliding.padded
    split = replace(padded, shape=(groups, channels, height, width))
    flat = replace(padded, shape=(groups * channels, height, width))
    gathered = replace(padded, shape=(groups, channels, *kernel, rows, columns))
    result = patches_type(sliding)
    source = f"g, c, h * {down} + y * {far_down}, w * {right} + x * {far_right}"
    text = f"""util.func public @layer(%arg0: {sliding.image}) -> {result} {{
{padding(sliding)}
  %flat = tensor.collapse_shape {padded_name(sliding)} [[0, 1], [2], [3]] : {padded} into {flat}
  %split = tensor.expand_shape %flat [[0, 1], [2], [3]] output_shape {list(split.shape)} : {flat} into {split}
  %room = tensor.empty() : {gathered}
  %gathered = linalg.generic {{
      indexing_maps = [affine_map<({_GATHERED}) -> ({source})>, affine_map<({_GATHERED}) -> ({_GATHERED})>],
      iterator_types = ["parallel", "parallel", "parallel", "parallel", "parallel", "parallel"]}}
      ins(%split : {split}) outs(%room : {gathered}) {{
  ^bb0(%pixel: {padded.dtype}, %out: {padded.dtype}):
    linalg.yield %pixel : {padded.dtype}
  }} -> {gathered}
  %result = tensor.collapse_shape %gathered [[0], [1, 2, 3], [4, 5]] : {gathered} into {result}
  util.return %result : {result}
}}"""
    return task_of(LayerKind.TOLERANT, text, (sliding.image,), (), (result,))


def patches_type(sliding: Sliding) -> TensorType:
    """Type of the patches of all groups."""
    groups, _, channels, *kernel = sliding.filter.shape
    shape = (groups, channels * math.prod(kernel), math.prod(sliding.result.shape[2:]))
    return replace(sliding.image, shape=shape)


def product_task(sliding: Sliding) -> Task:
    """A task from patches to the layer's result; its weights are the layer's filter, its bias and those of the tail.

    It multiplies two matrices or, if there are groups, a batch of one pair for each.
    """
    groups, after, *_ = sliding.filter.shape
    patches, result = patches_type(sliding), sliding.result
    filters = sliding.filter if groups > 1 else replace(sliding.filter, shape=sliding.filter.shape[1:])
    flat = replace(result, shape=(groups * after, patches.shape[-1]))
    bias = None if sliding.bias is None else replace(result, shape=flat.shape[:1])
    arguments = "" if bias is None else f", %bias: {bias}"
    text = f"""util.func public @layer(%patches: {patches}, %filters: {filters}{arguments}) -> {result} {{
{initial(flat, bias)}
{_batch(filters, patches, flat) if groups > 1 else _single(filters, patches, flat)}
  %result = tensor.expand_shape %flat [[0, 1], [2, 3]] output_shape {list(result.shape)} : {flat} into {result}
  util.return %result : {result}
}}"""
    weights = (filters, *([] if bias is None else [bias]))
    core = task_of(LayerKind.CONTRACTION, text, (patches,), weights, (result,))
    return core if sliding.tail is None else follow(core, sliding.tail)


def _single(filters: TensorType, patches: TensorType, flat: TensorType) -> str:
    """The product of filters, one for each channel, with the patches of the one group."""
    _, depth, pixels = patches.shape
    lhs, rhs = replace(flat, shape=(flat.shape[0], depth)), replace(flat, shape=(depth, pixels))
    return f"""  %left = tensor.collapse_shape %filters [[0], [1, 2, 3]] : {filters} into {lhs}
  %right = tensor.collapse_shape %patches [[0, 1], [2]] : {patches} into {rhs}
  %flat = linalg.matmul ins(%left, %right : {lhs}, {rhs}) outs(%initial : {flat}) -> {flat}"""


def _batch(filters: TensorType, patches: TensorType, flat: TensorType) -> str:
    """The products of all groups."""
    groups, depth, pixels = patches.shape
    lhs, made = (replace(flat, shape=(groups, filters.shape[1], last)) for last in (depth, pixels))
    return f"""  %left = tensor.collapse_shape %filters [[0], [1], [2, 3, 4]] : {filters} into {lhs}
  %start = tensor.expand_shape %initial [[0, 1], [2]] output_shape {list(made.shape)} : {flat} into {made}
  %product = linalg.batch_matmul ins(%left, %patches : {lhs}, {patches}) outs(%start : {made}) -> {made}
  %flat = tensor.collapse_shape %product [[0, 1], [2]] : {made} into {flat}"""
