"""What a convolution layer convolves."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from sartor.codegen.iree_compiler import ir, shared_context
from sartor.codegen.layer import Task, TensorType
from sartor.codegen.operations import body_of

_PLAIN = "linalg.conv_2d_nchw_fchw"


@dataclass(frozen=True)
class Convolution:
    """A two-dimensional convolution without groups.

    Attributes:
        image: type of the padded input, ``[N, IC, H, W]``.
        filter: type of the filter, ``[OC, IC, KH, KW]``.
        result: type of the result, ``[N, OC, OH, OW]``.
        strides: along H and W.
        dilations: along H and W.
    """

    image: TensorType
    filter: TensorType
    result: TensorType
    strides: tuple[int, int]
    dilations: tuple[int, int]

    @property
    def is_product(self) -> bool:
        """Whether it only multiplies every pixel's channels by a matrix."""
        return self.filter.shape[2:] == (1, 1) and self.strides == (1, 1)


@functools.lru_cache(maxsize=1024)
def convolution_of(task: Task) -> Convolution | None:
    """The convolution at the root of a layer; None for one with groups, or in another number of dimensions."""
    with shared_context():
        module = ir.Module.parse(task.body)
        ops = [view.operation for view in body_of(module.body.operations[0].operation).operations]
        found = [op for op in ops if op.name == _PLAIN]
        if len(found) != 1:
            return None
        (op,) = found
        image, weights, result = (TensorType.parse(str(value.type)) for value in op.operands)
        return Convolution(image, weights, result, _pair(op, "strides"), _pair(op, "dilations"))


def _pair(op: ir.Operation, name: str) -> tuple[int, int]:
    if name not in op.attributes:
        return 1, 1
    first, second = ir.DenseIntElementsAttr(op.attributes[name])
    return first, second
