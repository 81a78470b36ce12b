"""Shapes of the results of ONNX Runtime's products, look-ups and elementwise operators with several operands."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from sartor.onnx_model.operator_types.operands import Operands, Rule, Shape, Size, standard


def _standard(
    operator: str, *operands_read: int, opset: int = 13, attributes: Sequence[str] = (), indices: Sequence[int] = ()
) -> Rule:
    """The rule of a standard operator that reads some of the operands.

    Args:
        operator: its name.
        operands_read: the operands that it reads, in its order.
        opset: of the standard operator.
        attributes: the attributes that they share.
        indices: which of its own operands are indices.
    """

    def rule(operands: Operands) -> list[Shape]:
        shapes = [operands.shape(index) for index in operands_read]
        given = {name: operands.attribute(name) for name in attributes}
        return [standard(operator, shapes, given, opset=opset, indices=indices)]

    return rule


def _swapped(shape: Shape, *, batch: Any, matrix: Any) -> Shape:
    """The shape after ``transBatch`` and ``trans`` of a FusedMatMul."""
    if shape is None:
        return None
    sizes = list(shape)
    if batch and len(sizes) > 2:
        sizes = [*sizes[1:-1], sizes[0], sizes[-1]]
    if matrix and len(sizes) > 1:
        sizes[-2:] = sizes[:-3:-1]
    return sizes


def _fused_matmul(operands: Operands) -> list[Shape]:
    sides = [
        _swapped(
            operands.shape(index),
            batch=operands.attribute(f"transBatch{side}"),
            matrix=operands.attribute(f"trans{side}"),
        )
        for index, side in enumerate("AB")
    ]
    return [standard("MatMul", sides)]


def _block_product(operands: Operands) -> list[Shape]:
    shape = operands.shape(0)
    return [[*shape[:-1], operands.attribute("N")] if shape else None]


def _block_look_up(operands: Operands) -> list[Shape]:
    """Of a GatherBlockQuantized: bytes hold one, two or four numbers of the last dimension."""
    data, indices = operands.shape(0), operands.shape(1)
    if data is None or indices is None:
        return [None]
    packed = 8 // int(operands.attribute("bits", 4)) if _is_bytes(operands) else 1
    last = data[-1]
    sizes: list[Size] = [*data[:-1], last * packed if isinstance(last, int) else None]
    axis = int(operands.attribute("gather_axis", 0)) % len(sizes)
    return [[*sizes[:axis], *indices, *sizes[axis + 1 :]]]


def _is_bytes(operands: Operands) -> bool:
    return operands.kind(0) == 2


def _distances(operands: Operands) -> list[Shape]:
    left, right = operands.shape(0), operands.shape(1)
    return [[left[0], right[0]] if left and right else None]


def _unfolded(operands: Operands) -> list[Shape]:
    shape = operands.shape(0)
    if not shape:
        return [None]
    axis, size = int(operands.attribute("dim", -1)) % len(shape), int(operands.attribute("size"))
    length, step = shape[axis], int(operands.attribute("step", 1))
    count = (length - size) // step + 1 if isinstance(length, int) else None
    return [[*shape[:axis], count, *shape[axis + 1 :], size]]


def _concatenated(operands: Operands) -> list[Shape]:
    parts = [operands.shape(index) for index in range(2, operands.count, 3)]
    return [standard("Concat", parts, {"axis": operands.attribute("axis")})]


def _expanded(operands: Operands) -> list[Shape]:
    shape, axes = operands.shape(0), operands.values(1)
    return [standard("Unsqueeze", [shape, None], data={1: axes.reshape(-1)}) if axes is not None else None]


def _padded(operands: Operands) -> list[Shape]:
    shape, pads = operands.shape(0), operands.values(1)
    return [standard("Pad", [shape, None], data={1: pads.reshape(-1)}) if pads is not None else None]


def _counted(operands: Operands) -> list[Shape]:
    """Of a Range, whose step may be left out."""
    ends = [operands.values(index) for index in range(operands.count)]
    if any(end is None or end.size != 1 for end in ends):
        return [[None]]
    start, limit, step = (*(float(end.item()) for end in ends if end is not None), 1.0)[:3]
    return [[max(0, math.ceil((limit - start) / step)) if step else None]]


_GEMM = ("transA", "transB")

PRODUCT_SHAPES: Mapping[str, Rule] = {
    "CDist": _distances,
    "DynamicQuantizeMatMul": _standard("MatMul", 0, 1),
    "ExpandDims": _expanded,
    "FusedGemm": _standard("Gemm", 0, 1, attributes=_GEMM),
    "FusedMatMul": _fused_matmul,
    "GatherBlockQuantized": _block_look_up,
    "GatherND": _standard("GatherND", 0, 1, attributes=("batch_dims",), indices=(1,)),
    "GemmFastGelu": _standard("MatMul", 0, 1),
    "GridSample": _standard("GridSample", 0, 1, opset=16),
    "MatMulInteger16": _standard("MatMul", 0, 1),
    "MatMulIntegerToFloat": _standard("MatMul", 0, 1),
    "MatMulNBits": _block_product,
    "Pad": _padded,
    "QGemm": _standard("Gemm", 0, 3, attributes=_GEMM),
    "QLinearAdd": _standard("Add", 0, 3),
    "QLinearConcat": _concatenated,
    "QLinearMul": _standard("Mul", 0, 3),
    "QLinearReduceMean": _standard("ReduceMean", 0, attributes=("axes", "keepdims")),
    "QLinearWhere": _standard("Mul", 1, 4),
    "Range": _counted,
    "TorchEmbedding": _standard("Gather", 0, 1, indices=(1,)),
    "TransposeMatMul": _fused_matmul,
    "UnfoldTensor": _unfolded,
}
