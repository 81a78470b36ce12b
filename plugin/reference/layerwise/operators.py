"""Bounds on what rounding may change in a node's results, given those of its operands."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from onnx import NodeProto

from sartor.errors import UnsupportedModelError, UsageError
from sartor.onnx_model.graphs.graph import attributes
from sartor.onnx_model.graphs.walk import describe_node
from sartor.onnx_model.operator_types.alike import BY_WEIGHTS
from sartor.onnx_model.operator_types.moving import MOVING
from sartor.reference.layerwise.bounded import ROUNDOFF, Bounded, finite, half_roundoff, is_real, sum_roundoff
from sartor.reference.layerwise.node_run import NodeRun
from sartor.reference.layerwise.quantising import (
    dequantised,
    dynamically_quantised,
    holds_integers,
    product_of_integers,
    quantised,
)
from sartor.runtime.driver.signature import Array

Operands = list[Bounded | None]

# Results are sums of products of the first two operands, and of a third one.
_LINEAR = BY_WEIGHTS | {"FusedConv", "FusedGemm", "FusedMatMul"}
# Results are elements of the operands with these indices, or zeros; of all operands for None.
_MOVING: dict[str, tuple[int, ...] | None] = {
    **dict.fromkeys(("Concat",), None),
    **dict.fromkeys(
        MOVING - {"Concat"} | {"Dropout", "GatherElements", "GatherND", "GlobalMaxPool", "MaxPool", "Pad"}, (0,)
    ),
}
# Results are operands, or bounds of these.
_CHOOSING = frozenset({"Clip", "Max", "Min", "Relu"})
_SUMMING = frozenset({"AveragePool", "GlobalAveragePool", "Mean", "ReduceMean", "ReduceSum"})
# Of other functions, as fractions of the largest result: exponentials have errors of a few units in the last place.
_FUNCTION_ROUNDOFF = 16 * ROUNDOFF
_SEEDS = (1, 2)
# Changes are measured in few directions.
_OTHER_DIRECTIONS = 2.0
# Of each result one element of each operand decides, which both directions move as far as they may, but for what is
# curved between them. Twice as much for each of a chain, as GELU's five, would leave most values behind it open.
_ELEMENTWISE = _CHOOSING | {
    *("Abs", "Add", "Celu", "Div", "Elu", "Erf", "Exp", "Gelu", "HardSigmoid", "HardSwish", "LeakyRelu", "Log", "Mish"),
    *("Mul", "Neg", "PRelu", "Reciprocal", "Selu", "Sigmoid", "Softplus", "Softsign", "Sqrt", "Sub", "Sum", "Tanh"),
}
_CURVED = 1.01
# Of operands that are multiplied both changes together move a result by more than each alone.
_MULTIPLYING = frozenset({"Div", "Mul", "PRelu"})


@dataclass(frozen=True)
class Precision:
    """How exactly a layer computes.

    Attributes:
        growth: of rounding errors by a transformed space, as Winograd's is.
        roundoff: unit roundoff of a narrower type in which it multiplies; 0 for the model's own.
    """

    growth: float = 1.0
    roundoff: float = 0.0


EXACT = Precision()


def results_of(node: NodeProto, run: NodeRun, operands: Operands, precision: Precision = EXACT) -> list[Bounded]:
    """The results of a node that have a name, with bounds.

    Args:
        node: of any operator.
        run: computes it.
        operands: one for each input, None for those that it does not have.
        precision: of the layer that computes it.

    Raises:
        UnsupportedModelError, UsageError: if the reference does not run the node.
    """
    rule = _QUANTISING.get(node.op_type)
    bounded = rule(node, run, operands) if rule is not None else None
    if bounded is None:
        bounded = _computed(node, run, operands, precision)
    return [replace(bounds, error=None if bounds.error is None else finite(bounds.error)) for bounds in bounded]


def _computed(node: NodeProto, run: NodeRun, operands: Operands, precision: Precision) -> list[Bounded]:
    given = [operand.value if operand is not None else None for operand in operands]
    halves = max((half_roundoff(array) for array in given if array is not None), default=0.0)
    values, errors = _in_full(node, run, given, halves), [operand.error if operand else None for operand in operands]
    if not any(is_real(value) or holds_integers(value) for value in values):
        return [Bounded(value) for value in values]
    wide = [_widened(array) for array in given]
    if node.op_type in _LINEAR and all(is_real(value) for value in values):
        arrays = _of_sums(node, run, wide, errors, precision, _terms(node, wide))
    elif node.op_type in _SUMMING and all(is_real(value) for value in values):
        arrays = _of_sums(node, run, wide, errors, precision, _reduced(wide, values))
    elif node.op_type in _MOVING:
        moved = _moved(node, run, wide, errors)
        return [Bounded(*pair, is_exact=_are_exact(operands)) for pair in zip(values, moved, strict=True)]
    else:
        arrays = _by_changes(node, run, wide, errors, values)
        if node.op_type in _CHOOSING:
            return [Bounded(*pair, is_exact=_are_exact(operands)) for pair in zip(values, arrays, strict=True)]
        arrays = [_with_rounding(*pair) for pair in zip(values, arrays, strict=True)]
    return [
        Bounded(value, _with_half(value, error), is_exact=not is_real(value))
        for value, error in zip(values, arrays, strict=True)
    ]


def _are_exact(operands: Operands) -> bool:
    return all(operand.is_exact for operand in operands if operand is not None)


def _in_full(node: NodeProto, run: NodeRun, given: Sequence[Array | None], halves: float) -> list[Array]:
    """The results. In half precision they are computed in f32 and rounded once, where the operator exists in f32."""
    if not halves or node.op_type in ("Cast", "CastLike"):
        return run(given)
    kind = next(array.dtype for array in given if array is not None and half_roundoff(array))
    try:
        wide = run([_widened(array) for array in given])
    except (UnsupportedModelError, UsageError):
        return run(given)
    with np.errstate(over="ignore"):
        return [array.astype(kind) if array.dtype == np.float32 else array for array in wide]


def _widened(array: Array | None) -> Array | None:
    return array.astype(np.float32) if array is not None and half_roundoff(array) else array


def _with_half(value: Array, error: Array | None) -> Array | None:
    """A bound with the rounding to half precision, where that is the type of the result."""
    unit = half_roundoff(value)
    if not unit:
        return error
    smallest = float(np.finfo(np.float16).smallest_subnormal) if value.dtype == np.float16 else 0.0
    rounding = np.abs(value.astype(np.float32)) * np.float32(2 * unit) + np.float32(smallest)
    return rounding if error is None else error + rounding


def _terms(node: NodeProto, given: Sequence[Array | None]) -> int:
    """Number of products in each sum."""
    first, second = given[:2]
    if first is None or second is None:
        return 1
    if node.op_type in ("Conv", "FusedConv"):
        return math.prod(second.shape[1:])
    if node.op_type == "ConvTranspose":
        return second.shape[0] * math.prod(second.shape[2:])
    rows = bool(attributes(node).get("transA", 0)) and first.ndim > 1
    return first.shape[-2 if rows else -1] if first.ndim else 1


def _reduced(given: Sequence[Array | None], values: Sequence[Array]) -> int:
    """Number of terms in each sum of a reduction."""
    size = sum(array.size for array in given if array is not None and is_real(array))
    return max(size // max(values[0].size, 1), 1)


def _of_sums(
    node: NodeProto,
    run: NodeRun,
    given: Sequence[Array | None],
    errors: Sequence[Array | None],
    precision: Precision,
    terms: int,
) -> list[Array | None]:
    """Bounds of sums of products, or of sums: a fraction of the sum of magnitudes, and what errors of operands add."""
    positive = _positive(node, run)
    sizes = [np.abs(operand) if operand is not None and is_real(operand) else operand for operand in given]
    (magnitude,) = positive(sizes)[:1]
    fraction = precision.growth * sum_roundoff(terms) + 4 * precision.roundoff
    bound = magnitude * np.float32(fraction)
    factors = 2 if node.op_type in _LINEAR else len(given)
    for index, error in enumerate(errors):
        if error is not None:
            changed: list[Array | None] = list(sizes)
            changed[index] = error.astype(np.float32)
            for other, array in enumerate(sizes):
                is_added = other >= factors or index >= factors or node.op_type not in _LINEAR
                if other != index and is_added and array is not None and is_real(array):
                    changed[other] = np.zeros_like(array)
            bound = bound + positive(changed)[0]
    return [bound]


def _positive(node: NodeProto, run: NodeRun) -> NodeRun:
    """The node with factors above zero."""
    if not any(attribute.name in ("alpha", "beta") and attribute.f < 0 for attribute in node.attribute):
        return run
    copy = NodeProto()
    copy.CopyFrom(node)
    for attribute in copy.attribute:
        if attribute.name in ("alpha", "beta"):
            attribute.f = abs(attribute.f)
    return run.of(copy)


def _moved(
    node: NodeProto, run: NodeRun, given: Sequence[Array | None], errors: Sequence[Array | None]
) -> list[Array | None]:
    """Bounds of elements that a node moves, which it moves likewise."""
    if all(error is None for error in errors):
        return [None] * len(run.results)
    places = _MOVING[node.op_type]
    operands: list[Array | None] = []
    for index, (array, error) in enumerate(zip(given, errors, strict=True)):
        if array is not None and (places is None or index in places):
            operands.append(np.zeros(array.shape, np.float32) if error is None else error.astype(np.float32))
        elif node.op_type == "Pad" and index == 2 and array is not None:
            operands.append(np.zeros(array.shape, np.float32))
        else:
            operands.append(array)
    moved = list(run(operands))
    return [array if array.dtype == np.float32 else None for array in moved]


def _by_changes(
    node: NodeProto,
    run: NodeRun,
    given: Sequence[Array | None],
    errors: Sequence[Array | None],
    values: Sequence[Array],
) -> list[Array | None]:
    """Bounds measured by changes of operands by their own bounds, in several directions.

    Raises:
        UnsupportedModelError: if a change gives a result of another shape, or an operand is of a type without limits.
    """
    bounds: list[Array | None] = [None] * len(values)
    if all(error is None for error in errors):
        return bounds
    right, growth = run(given), _CURVED if node.op_type in _ELEMENTWISE else _OTHER_DIRECTIONS
    for together in _changes(node, given, errors):
        largest: list[Array] = [np.zeros(output.shape, np.float32) for output in right]
        for changed in together:
            for place, result in enumerate(run([changed.get(index, array) for index, array in enumerate(given)])):
                if result.shape != right[place].shape:
                    raise UnsupportedModelError(f"the shape of what {describe_node(node)} gives depends on rounding")
                with np.errstate(all="ignore"):
                    moved = np.abs(result.astype(np.float64) - right[place].astype(np.float64))
                largest[place] = np.maximum(largest[place], moved).astype(np.float32)
        for place, moved in enumerate(largest):
            known = bounds[place]
            grown = moved if is_real(right[place]) is False else np.float32(growth) * moved
            bounds[place] = grown if known is None else known + grown
    return bounds


def _changes(
    node: NodeProto, given: Sequence[Array | None], errors: Sequence[Array | None]
) -> Iterator[Iterator[Mapping[int, Array]]]:
    """Changed operands by index: several ways to change those that change together, by default each by itself.

    Raises:
        UnsupportedModelError: if an operand is of a type without limits.
    """
    moved = [
        (index, array, error)
        for index, (array, error) in enumerate(zip(given, errors, strict=True))
        if array is not None and error is not None
    ]
    if node.op_type in _MULTIPLYING:
        ways = itertools.product((np.float32(-1), np.float32(1)), repeat=len(moved))
        yield (
            {index: _changed(node, array, sign * error) for sign, (index, array, error) in zip(way, moved, strict=True)}
            for way in ways
        )
    else:
        for index, array, error in moved:
            yield ({index: _changed(node, array, direction * error)} for direction in _directions(error.shape))


def _directions(shape: tuple[int, ...]) -> list[Array]:
    signs = np.array([-1, 1], np.float32)
    drawn = [np.random.default_rng(seed).choice(signs, shape) for seed in _SEEDS]
    return [np.ones(shape, np.float32), -np.ones(shape, np.float32), *drawn]


def _changed(node: NodeProto, array: Array, change: Array) -> Array:
    if is_real(array):
        return (array + change).astype(array.dtype)
    if array.dtype.kind not in "iu":
        raise UnsupportedModelError(f"{describe_node(node)} reads {array.dtype}, in which rounding is not followed")
    limits = np.iinfo(array.dtype)
    return np.clip(array.astype(np.int64) + np.rint(change).astype(np.int64), limits.min, limits.max).astype(
        array.dtype
    )


def _with_rounding(value: Array, error: Array | None) -> Array | None:
    """A bound with the rounding of a function's result."""
    if not is_real(value) or not value.size:
        return error
    wide = np.abs(value.astype(np.float64))
    largest = float(np.max(np.where(np.isfinite(wide), wide, 0.0)))
    rounding = np.full(value.shape, _FUNCTION_ROUNDOFF * largest, np.float32)
    return rounding if error is None else error + rounding


_Rule = Callable[[NodeProto, NodeRun, Operands], list[Bounded] | None]


def _values(operands: Operands) -> list[Array | None]:
    return [operand.value if operand is not None else None for operand in operands]


_QUANTISING: dict[str, _Rule] = {
    "QuantizeLinear": lambda node, run, operands: quantised(node, operands),
    "DequantizeLinear": lambda node, run, operands: dequantised(node, operands),
    "DynamicQuantizeLinear": lambda node, run, operands: dynamically_quantised(operands, run(_values(operands))),
    "MatMulInteger": lambda node, run, operands: product_of_integers(operands, np.dtype(np.int32)),
}
