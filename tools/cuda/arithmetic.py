"""Operations of the dialects ``arith``, ``math`` and ``vector`` on arrays whose first dimension is that of threads."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from sartor.codegen.ir.layer import TensorType
from sartor.codegen.mlir.iree_compiler import ir

Operation = Callable[[ir.Operation, list[np.ndarray]], np.ndarray]

_INDEX = np.dtype(np.int64)


def dtype_of(kind: ir.Type) -> np.dtype[Any]:
    """numpy's type of a scalar type."""
    return _INDEX if isinstance(kind, ir.IndexType) else TensorType((), str(kind)).numpy_dtype


def _parts(kind: ir.Type) -> tuple[tuple[int, ...], np.dtype[Any]]:
    if isinstance(kind, ir.VectorType):
        return tuple(kind.shape), dtype_of(kind.element_type)
    return (), dtype_of(kind)


def constant(op: ir.Operation) -> np.ndarray:
    """The value of ``arith.constant``, the same in all threads."""
    attribute = op.attributes["value"]
    shape, dtype = _parts(op.results[0].type)
    scalar = attribute.get_splat_value() if isinstance(attribute, ir.DenseElementsAttr) else attribute
    number = ir.BoolAttr(scalar).value if str(scalar) in ("true", "false") else scalar.value
    if dtype.kind in "iu" and isinstance(number, int):
        number = (number + (1 << 8 * dtype.itemsize - 1)) % (1 << 8 * dtype.itemsize) - (1 << 8 * dtype.itemsize - 1)
    return np.full((1, *shape), number, dtype)


def _typed(op: ir.Operation) -> np.dtype[Any]:
    return _parts(op.results[0].type)[1]


def _unsigned(array: np.ndarray) -> np.ndarray:
    return array.view(f"u{array.dtype.itemsize}")


_COMPARISONS: Mapping[int, Callable[..., np.ndarray]] = {
    0: np.equal,
    1: np.not_equal,
    2: np.less,
    3: np.less_equal,
    4: np.greater,
    5: np.greater_equal,
    6: lambda a, b: _unsigned(a) < _unsigned(b),
    7: lambda a, b: _unsigned(a) <= _unsigned(b),
    8: lambda a, b: _unsigned(a) > _unsigned(b),
    9: lambda a, b: _unsigned(a) >= _unsigned(b),
}
_FLOAT_COMPARISONS: Mapping[int, Callable[..., np.ndarray]] = {
    1: np.equal,
    2: np.greater,
    3: np.greater_equal,
    4: np.less,
    5: np.less_equal,
    6: lambda a, b: (a < b) | (a > b),
    7: lambda a, b: ~(np.isnan(a) | np.isnan(b)),
    8: lambda a, b: ~((a < b) | (a > b)),
    9: lambda a, b: ~(a <= b),
    10: lambda a, b: ~(a < b),
    11: lambda a, b: ~(a >= b),
    12: lambda a, b: ~(a > b),
    13: np.not_equal,
    14: lambda a, b: np.isnan(a) | np.isnan(b),
}


def _predicate(op: ir.Operation) -> int:
    return int(ir.IntegerAttr(op.attributes["predicate"]).value)


def _bitcast(op: ir.Operation, operands: list[np.ndarray]) -> np.ndarray:
    return np.ascontiguousarray(operands[0]).view(_typed(op))


def _select(op: ir.Operation, operands: list[np.ndarray]) -> np.ndarray:
    condition, one, other = operands
    shape = condition.reshape(*condition.shape, *[1] * (max(one.ndim, other.ndim) - condition.ndim))
    return np.where(shape, one, other)


def _binary(function: Callable[..., np.ndarray]) -> Operation:
    return lambda op, operands: function(*operands).astype(_typed(op))


def _unary(function: Callable[..., Any]) -> Operation:
    return lambda op, operands: np.asarray(function(operands[0])).astype(_typed(op))


def _converted(op: ir.Operation, operands: list[np.ndarray]) -> np.ndarray:
    return operands[0].astype(_typed(op))


def _without_sign(integers: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(integers).view(f"u{integers.dtype.itemsize}")


_ERF = np.vectorize(math.erf, otypes=[np.float64])

ARITHMETIC: Mapping[str, Operation] = {
    **{f"arith.{name}": _binary(np.add) for name in ("addi", "addf")},
    **{f"arith.{name}": _binary(np.subtract) for name in ("subi", "subf")},
    **{f"arith.{name}": _binary(np.multiply) for name in ("muli", "mulf")},
    **{f"arith.{name}": _converted for name in ("extf", "truncf", "extsi", "trunci", "sitofp", "fptosi", "index_cast")},
    **{f"arith.{name}": _bitcast for name in ("bitcast",)},
    **{f"arith.{name}": _binary(np.maximum) for name in ("maximumf", "maxsi")},
    **{f"arith.{name}": _binary(np.minimum) for name in ("minimumf", "minsi")},
    **{f"math.{name}": _unary(getattr(np, name)) for name in ("exp", "exp2", "log", "sqrt", "tanh", "floor", "ceil")},
    "arith.divui": _binary(np.floor_divide),
    "arith.remui": _binary(np.remainder),
    "arith.ceildivsi": _binary(lambda a, b: -(-a // b)),
    "arith.divf": _binary(np.divide),
    "arith.maxnumf": _binary(np.fmax),
    "arith.minnumf": _binary(np.fmin),
    "arith.negf": _unary(np.negative),
    "arith.xori": _binary(np.bitwise_xor),
    "arith.andi": _binary(np.bitwise_and),
    "arith.ori": _binary(np.bitwise_or),
    "arith.shli": _binary(np.left_shift),
    "arith.shrui": _binary(lambda a, b: _without_sign(a) >> _without_sign(b)),
    "arith.extui": lambda op, operands: _without_sign(operands[0]).astype(_typed(op)),
    "arith.cmpi": lambda op, operands: _COMPARISONS[_predicate(op)](*operands),
    "arith.cmpf": lambda op, operands: _FLOAT_COMPARISONS[_predicate(op)](*operands),
    "arith.select": _select,
    "math.absf": _unary(np.abs),
    "math.roundeven": _unary(np.rint),
    "math.rsqrt": _unary(lambda a: 1 / np.sqrt(a)),
    "math.erf": _unary(_ERF),
    "math.fma": _binary(lambda a, b, c: a.astype(np.float64) * b + c),
    "vector.fma": _binary(lambda a, b, c: a.astype(np.float64) * b + c),
    "vector.bitcast": _bitcast,
}
"""Operations that compute each element by itself."""


ASSEMBLY: Mapping[str, Callable[[np.ndarray], np.ndarray]] = {"mov.f32 $0, $1;": lambda number: number}
"""Instructions of PTX that kernels name themselves."""


def _broadcast(op: ir.Operation, operands: list[np.ndarray]) -> np.ndarray:
    shape, _ = _parts(op.results[0].type)
    array = operands[0]
    filled = array.reshape(array.shape[0], *[1] * (len(shape) - array.ndim + 1), *array.shape[1:])
    return np.broadcast_to(filled, (array.shape[0], *shape))


def _static(op: ir.Operation) -> tuple[int, ...]:
    return tuple(ir.DenseI64ArrayAttr(op.attributes["static_position"]))


def _extract(op: ir.Operation, operands: list[np.ndarray]) -> np.ndarray:
    places: tuple[Any, ...] = (slice(None), *_static(op))
    return np.asarray(operands[0][places])


def _insert(op: ir.Operation, operands: list[np.ndarray]) -> np.ndarray:
    part, whole = operands
    threads = max(len(part), len(whole))
    found = np.array(np.broadcast_to(whole, (threads, *whole.shape[1:])))
    places: tuple[Any, ...] = (slice(None), *_static(op))
    found[places] = part
    return found


def _numbers(op: ir.Operation, name: str) -> list[int]:
    return [ir.IntegerAttr(each).value for each in ir.ArrayAttr(op.attributes[name])]


def _strided(op: ir.Operation, operands: list[np.ndarray]) -> np.ndarray:
    parts = [
        slice(number, number + size)
        for number, size in zip(_numbers(op, "offsets"), _numbers(op, "sizes"), strict=True)
    ]
    places: tuple[Any, ...] = (slice(None), *parts)
    return np.asarray(operands[0][places])


def _shuffled(op: ir.Operation, operands: list[np.ndarray]) -> np.ndarray:
    both = np.concatenate(np.broadcast_arrays(*operands), axis=1)
    return np.asarray(both[:, list(ir.DenseI64ArrayAttr(op.attributes["mask"]))])


def _elements(op: ir.Operation, operands: list[np.ndarray]) -> np.ndarray:
    shape, _ = _parts(op.results[0].type)
    stacked = np.stack(np.broadcast_arrays(*operands), axis=1)
    return stacked.reshape(stacked.shape[0], *shape)


SHAPES: Mapping[str, Operation] = {
    "vector.broadcast": _broadcast,
    "vector.extract": _extract,
    "vector.insert": _insert,
    "vector.extract_strided_slice": _strided,
    "vector.shuffle": _shuffled,
    "vector.from_elements": _elements,
}
"""Operations that move elements."""
