"""Runs layers with activations stored in narrower types, on numbers that those types and the weights' represent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from sartor.codegen.ir.layer import TensorType
from sartor.codegen.ir.layouts import layout_packing
from sartor.codegen.ir.schema import Schema
from sartor.codegen.linking.names import EXPORT_PREFIX
from sartor.runtime.driver.program import Program
from sartor.runtime.driver.signature import Array
from sartor.tuning.calibration.quantised_range import QuantisedRange
from tests.codegen.routines.harness import Subject, called
from tests.emulated import EmulatedProgram

# Sums of f32 in another order.
REORDERING = 1e-5
# The last rounding of a result, relative to the result, or to the step of its range.
ROUNDING = {"bf16": 2.0**-8, "f16": 2.0**-11}
_HALF_A_STEP = 0.501
_IMAGE_RANK, _MATRIX_RANK = 4, 2

Loaded = Program | EmulatedProgram
Ranges = Mapping[int | None, QuantisedRange]


def rounded(array: Array, dtype: str) -> Array:
    """The nearest numbers of a narrower floating-point type."""
    return array.astype(TensorType((), dtype).numpy_dtype).astype(array.dtype)


def rounded_subject(subject: Subject, dtype: str) -> Subject:
    """A subject whose weights a routine over ``dtype`` has without loss."""
    turn = rounded_by_channel if dtype == "i8" else lambda each: rounded(each, dtype)
    weights = {name: turn(each) if each.dtype == np.float32 else each for name, each in subject.weights.items()}
    return replace(subject, weights=weights)


def wrong(
    program: Loaded,
    subject: Subject,
    dtype: str,
    everywhere: QuantisedRange | None = None,
    stock: tuple[Program, Subject] | None = None,
) -> dict[str, float]:
    """The worst difference from candidate 0, as a multiple of what is allowed, of each implementation that has one.

    ``everywhere`` is the range of all activations and the result if they are quantised; by default each has its own.
    ``stock`` is where candidate 0 is, if not in ``program``.
    """
    inputs, ranges = _inputs(subject, dtype, everywhere)
    expected = run_stored(*(stock or (program, subject)), "stock", inputs, {}).astype(np.float64)
    ranges[None] = everywhere or _range(expected)
    allowed = REORDERING * np.abs(expected).max() + (
        _HALF_A_STEP * ranges[None].scale if dtype == "i8" else ROUNDING[dtype] * np.abs(expected)
    )
    worst = dict(_differences(program, subject, inputs, ranges, expected, allowed))
    return {name: each for name, each in worst.items() if not each <= 1}


def _differences(
    program: Loaded, subject: Subject, inputs: list[Array], ranges: Ranges, expected: Array, allowed: Array
) -> Iterator[tuple[str, float]]:
    for name in subject.implementations:
        found = run_stored(program, subject, name, inputs, ranges)
        yield name, float((np.abs(found - expected) / allowed).max())


def _inputs(
    subject: Subject, dtype: str, everywhere: QuantisedRange | None
) -> tuple[list[Array], dict[int | None, QuantisedRange]]:
    """Activations that are numbers of the type, and their ranges if it is quantised, whose zero points differ."""
    drawn = [each + np.float32(index) - np.float32(0.7) for index, each in enumerate(subject.inputs())]
    if dtype != "i8":
        return [rounded(each, dtype) for each in drawn], {}
    ranges: dict[int | None, QuantisedRange] = {index: everywhere or _range(each) for index, each in enumerate(drawn)}
    return [ranges[index].round(each).astype(np.float32) for index, each in enumerate(drawn)], ranges


def _range(array: Array) -> QuantisedRange:
    return QuantisedRange.of(float(array.min(initial=0.0)), float(array.max(initial=0.0)))


def rounded_by_channel(array: Array) -> Array:
    """Weights as 8 bits of a scale for each channel of the result represent them."""
    if array.ndim not in (_IMAGE_RANK, _MATRIX_RANK):
        return array
    others = (1, 2, 3) if array.ndim == _IMAGE_RANK else (0,)
    largest = np.abs(array).max(axis=others, keepdims=True)
    scales = np.where(largest > 0, largest / 127, 1).astype(np.float32)
    return np.asarray(np.rint(array / scales) * scales, np.float32)


def run_stored(program: Loaded, subject: Subject, name: str, inputs: list[Array], ranges: Ranges) -> Array:
    """The layer's result, in ONNX's layout and type, as one implementation computes it."""
    code, task = subject.implementations[name], subject.task
    arguments = [
        _stored(array, tensor, schema, ranges.get(index))
        for index, (array, tensor, schema) in enumerate(zip(inputs, task.inputs, code.inputs, strict=True))
    ]
    arguments += [
        packing.apply(subject.weights[weight])
        for weight, packing in zip(subject.layer.weights, code.packings, strict=True)
    ]
    arguments += [ranges[each].numbers for each in code.ranges]
    (tensor,) = subject.signature(name)[1]
    found = called(program, EXPORT_PREFIX + subject.symbol(name), arguments, tensor)
    numbers = ranges.get(None) if None in code.ranges else None
    return _logical(found if numbers is None else numbers.dequantise(found), task.results[0], code.output.layout)


def _stored(array: Array, tensor: TensorType, schema: Schema, numbers: QuantisedRange | None) -> Array:
    found = schema.packing(tensor).apply(array)
    return numbers.quantise(found) if numbers is not None and schema.quantises(tensor) else found


def _logical(array: Array, tensor: TensorType, layout: str) -> Array:
    places = layout_packing(tensor, layout).apply(np.arange(tensor.elements).reshape(tensor.shape))
    result = np.empty(tensor.elements, np.float64)
    result[places.ravel()] = array.ravel()
    return result.reshape(tensor.shape)
