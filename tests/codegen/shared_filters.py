"""Convolutions whose filters have the shape of the result, and are added to it."""

from __future__ import annotations

from sartor.codegen.ir.layer import LayerKind, Task, TensorType
from sartor.codegen.subgraphs.fusion import task_of

_DENSE = "linalg.conv_2d_nchw_fchw"
_BY_CHANNEL = "linalg.depthwise_conv_2d_nchw_chw"


def dense() -> Task:
    """Filters ``[OC, IC, KH, KW]`` that are added as an image."""
    return _convolution(
        LayerKind.CONVOLUTION, _DENSE, TensorType((16, 16, 3, 3), "f32"), "(n, c, h, w) -> (n, c, h, w)"
    )


def depthwise() -> Task:
    """Filters ``[C, KH, KW]`` that are added to each image of the batch; channels fill no block."""
    return _convolution(LayerKind.DEPTHWISE, _BY_CHANNEL, TensorType((5, 5, 5), "f32"), "(n, c, h, w) -> (c, h, w)")


def _convolution(kind: LayerKind, operator: str, filters: TensorType, read: str) -> Task:
    channels, kernel = filters.shape[0], filters.shape[-1]
    image, result = (TensorType((channels, channels, size, size), "f32") for size in (2 * kernel - 1, kernel))
    text = f"""util.func public @layer(%arg0: {image}, %arg1: {filters}) -> {result} {{
  %zero = arith.constant 0.000000e+00 : f32
  %empty = tensor.empty() : {result}
  %start = linalg.fill ins(%zero : f32) outs(%empty : {result}) -> {result}
  %sums = {operator} {{dilations = dense<1> : vector<2xi64>, strides = dense<1> : vector<2xi64>}}
      ins(%arg0, %arg1 : {image}, {filters}) outs(%start : {result}) -> {result}
  %result = linalg.generic {{
      indexing_maps = [affine_map<(n, c, h, w) -> (n, c, h, w)>, affine_map<{read}>,
                       affine_map<(n, c, h, w) -> (n, c, h, w)>],
      iterator_types = ["parallel", "parallel", "parallel", "parallel"]}}
      ins(%sums, %arg1 : {result}, {filters}) outs(%empty : {result}) {{
  ^bb0(%sum: f32, %tap: f32, %out: f32):
    %added = arith.addf %sum, %tap : f32
    linalg.yield %added : f32
  }} -> {result}
  util.return %result : {result}
}}"""
    return task_of(kind, text, (image,), (filters,), (result,))
