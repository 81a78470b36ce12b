"""The sliding window that a layer computes: a convolution, or a window over each channel by itself."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from sartor.codegen.ir.layer import Task, TensorType
from sartor.codegen.mlir.iree_compiler import ir, shared_context
from sartor.codegen.mlir.operations import body_of, defining_op

_PLAIN = "linalg.conv_2d_nchw_fchw"
_DEPTHWISE = "linalg.depthwise_conv_2d_nchw_chw"
_APART = (_DEPTHWISE, "linalg.pooling_nchw_max", "linalg.pooling_nchw_sum")


@dataclass(frozen=True)
class Convolution:
    """A two-dimensional convolution without groups.

    Attributes:
        image: type of the padded input, ``[N, IC, H, W]``.
        filter: type of the filter, ``[OC, IC, KH, KW]``.
        result: type of the result, ``[N, OC, OH, OW]``.
        strides: along H and W.
        dilations: along H and W.
        is_padded: whether the layer itself pads the input.
    """

    image: TensorType
    filter: TensorType
    result: TensorType
    strides: tuple[int, int]
    dilations: tuple[int, int]
    is_padded: bool = False

    @property
    def is_product(self) -> bool:
        """Whether it only multiplies every pixel's channels by a matrix."""
        return self.filter.shape[2:] == (1, 1) and self.strides == (1, 1)


@dataclass(frozen=True)
class Window:
    """A window over each channel by itself: a depthwise convolution or a pooling.

    Attributes:
        image: type of the padded input, ``[N, C, H, W]``.
        kernel: extent of the window along H and W.
        result: type of the result, ``[N, C, OH, OW]``.
        strides: along H and W.
        dilations: along H and W.
        is_weighted: whether it has filters, ``[C, KH, KW]``.
    """

    image: TensorType
    kernel: tuple[int, int]
    result: TensorType
    strides: tuple[int, int]
    dilations: tuple[int, int]
    is_weighted: bool


@functools.lru_cache(maxsize=1024)
def convolution_of(task: Task) -> Convolution | None:
    """The convolution at the root of a layer; None for one with groups, or in another number of dimensions."""
    with shared_context():
        module = ir.Module.parse(task.body)
        op = _only(module, (_PLAIN,))
        if op is None:
            return None
        image, weights, result = (TensorType.parse(str(value.type)) for value in op.operands)
        source = defining_op(op.operands[0])
        is_padded = source is not None and source.name == "tensor.pad"
        return Convolution(image, weights, result, _pair(op, "strides"), _pair(op, "dilations"), is_padded)


@functools.lru_cache(maxsize=1024)
def window_of(task: Task) -> Window | None:
    """The two-dimensional depthwise convolution or pooling at the root of a layer; None if there is none."""
    with shared_context():
        module = ir.Module.parse(task.body)
        op = _only(module, _APART)
        if op is None:
            return None
        image, window, result = (TensorType.parse(str(value.type)) for value in op.operands)
        height, width = window.shape[-2:]
        strides, dilations = _pair(op, "strides"), _pair(op, "dilations")
        return Window(image, (height, width), result, strides, dilations, op.name == _DEPTHWISE)


def _only(module: ir.Module, names: tuple[str, ...]) -> ir.Operation | None:
    """The one op of a layer that has one of these names, or None; it lives as long as ``module``."""
    ops = [view.operation for view in body_of(module.body.operations[0].operation).operations]
    named = [op for op in ops if op.name in names]
    return named[0] if len(named) == 1 else None


def _pair(op: ir.Operation, name: str) -> tuple[int, int]:
    if name not in op.attributes:
        return 1, 1
    first, second = ir.DenseIntElementsAttr(op.attributes[name])
    return first, second
