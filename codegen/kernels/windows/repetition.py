"""Images enlarged to the nearest pixels, each of which is repeated along rows and columns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from sartor.codegen.ir.layouts import IMAGE_RANK
from sartor.codegen.mlir.iree_compiler import arith, ir
from sartor.codegen.mlir.operations import body_of, defining_op, indexing_maps

_EXTRACT, _INDEX = "tensor.extract", "linalg.index"
_BATCH, _CHANNEL, _ROW, _COLUMN = range(IMAGE_RANK)
Numbers = np.ndarray[Any, Any]
# How importers compute the pixel nearest to a position, in f32.
_ARITHMETIC: dict[str, Callable[..., Numbers]] = {
    "arith.index_cast": lambda value: value,
    "arith.sitofp": lambda value: value.astype(np.float32),
    "arith.fptosi": lambda value: value.astype(np.int64),
    "arith.addf": np.add,
    "arith.subf": np.subtract,
    "arith.mulf": np.multiply,
    "arith.divf": np.divide,
    "arith.maximumf": np.maximum,
    "arith.minimumf": np.minimum,
    "arith.select": np.where,
    "math.floor": np.floor,
    "math.ceil": np.ceil,
    "math.roundeven": np.rint,
}
# None of the numbers is NaN.
_COMPARISONS: dict[int, Callable[..., Numbers]] = {
    int(arith.CmpFPredicate.OLE): np.less_equal,
    int(arith.CmpFPredicate.ULE): np.less_equal,
    int(arith.CmpFPredicate.OLT): np.less,
    int(arith.CmpFPredicate.ULT): np.less,
    int(arith.CmpFPredicate.OGE): np.greater_equal,
    int(arith.CmpFPredicate.UGE): np.greater_equal,
    int(arith.CmpFPredicate.OGT): np.greater,
    int(arith.CmpFPredicate.UGT): np.greater,
}


@dataclass(frozen=True)
class Repetition:
    """An image ``[N, C, H, W]`` each pixel of which is repeated.

    Attributes:
        origin: the image.
        rows: how often each row is repeated.
        columns: how often each pixel of a row is repeated.
    """

    origin: ir.Value
    rows: int
    columns: int


def repetition_of(value: ir.Value) -> Repetition | None:
    """The image that a value is enlarged from; None if it is not, or not by whole factors alone.

    Importers compute with floating-point numbers which pixel is read, in several ways. So these computations are
    carried out for all positions, and the pixels that they give are looked at.
    """
    repeated = repeated_image(value)
    if repeated is None:
        return None
    origin, factors = repeated
    is_image = factors[_BATCH] == factors[_CHANNEL] == 1
    return Repetition(origin, factors[_ROW], factors[_COLUMN]) if is_image else None


def repeated_image(value: ir.Value) -> tuple[ir.Value, tuple[int, ...]] | None:
    """The image that a value repeats elements of, and how often along each dimension; None if it does anything else."""
    op = defining_op(value)
    if op is None or op.name != "linalg.generic" or len(op.operands) != 1 or not _writes_in_order(op):
        return None
    extract = defining_op(list(body_of(op).operations)[-1].operation.operands[0])
    if extract is None or extract.name != _EXTRACT:
        return None
    origin, *indices = extract.operands
    shape, source = (tuple(ir.RankedTensorType(value_of_image.type).shape) for value_of_image in (value, origin))
    if len(shape) != IMAGE_RANK or len(source) != IMAGE_RANK or 0 in (*shape, *source):
        return None
    if any(to % size for to, size in zip(shape, source, strict=True)):
        return None
    factors = tuple(to // size for to, size in zip(shape, source, strict=True))
    repeats = all(_repeats(*sizes) for sizes in zip(indices, range(IMAGE_RANK), shape, factors, strict=True))
    return (origin, factors) if repeats else None


def _writes_in_order(op: ir.Operation) -> bool:
    """Whether what is computed at a position of the loops is stored there."""
    kinds = [str(kind) for kind in ir.ArrayAttr(op.attributes["iterator_types"])]
    is_parallel = len(op.results) == 1 and all("parallel" in kind for kind in kinds)
    return is_parallel and indexing_maps(op) == [ir.AffineMap.get_identity(IMAGE_RANK, op.context)]


def _repeats(index: ir.Value, axis: int, size: int, factor: int) -> bool:
    """Whether an index along ``axis`` is the position divided by a factor, for each of ``size`` positions."""
    positions = np.arange(size)
    array = _computed(index, axis, positions)
    return array is not None and bool(np.array_equal(np.broadcast_to(array, size), positions // factor))


def _computed(value: ir.Value, axis: int, positions: Numbers) -> Numbers | None:
    """Numbers at all positions along an axis; None if they depend on others, or are computed in an unknown way."""
    op = defining_op(value)
    if op is None:
        return None
    if op.name == _INDEX:
        return positions if int(ir.IntegerAttr(op.attributes["dim"]).value) == axis else None
    if op.name == "arith.constant":
        return _constant(op.attributes["value"])
    operands = [_computed(operand, axis, positions) for operand in op.operands]
    compute = _function(op)
    return None if compute is None or any(operand is None for operand in operands) else compute(*operands)


def _function(op: ir.Operation) -> Callable[..., Numbers] | None:
    if op.name == "arith.cmpf":
        return _COMPARISONS.get(int(ir.IntegerAttr(op.attributes["predicate"]).value))
    return _ARITHMETIC.get(op.name)


def _constant(attribute: ir.Attribute) -> Numbers | None:
    if isinstance(attribute, ir.IntegerAttr):
        return np.asarray(attribute.value)
    if isinstance(attribute, ir.FloatAttr) and isinstance(attribute.type, ir.F32Type):
        return np.asarray(attribute.value, np.float32)
    return None
