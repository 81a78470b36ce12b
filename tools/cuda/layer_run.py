"""Runs a layer's kernels by the interpreter, from arrays in ONNX's layouts to one."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np

from sartor.codegen.ir.layer import Task, TensorType
from sartor.codegen.ir.layouts import layout_packing
from sartor.codegen.ir.variants.routine import Implementation
from sartor.tuning.calibration.quantised_range import QuantisedRange
from tools.cuda.interpreter import Counts, run_kernel, types_of

_NO_RANGES: Mapping[int | None, QuantisedRange] = {}
_DISPATCH = re.compile(r"%(\w+) = flow\.dispatch @\w+::@\w+::@(\w+)\(([^)]*)\)")


def run_layer(
    code: Implementation,
    task: Task,
    inputs: Sequence[np.ndarray],
    weights: Sequence[np.ndarray],
    ranges: Mapping[int | None, QuantisedRange] = _NO_RANGES,
) -> tuple[np.ndarray, list[Counts]]:
    """The result of a layer, in ONNX's layout, and what each kernel did.

    Args:
        code: of the layer; its kernels are those of a GPU.
        task: the layer.
        inputs: activations in ONNX's layout.
        weights: as ONNX has them.
        ranges: of activations by position, and of the result, where they are stored in 8 bits.

    Raises:
        KernelFault: if a kernel is wrong.
        ValueError: if the code has no kernels.
    """
    if code.kernel is None:
        raise ValueError("the layer's code is IREE's")
    packed = [
        _stored(schema.packing(tensor).apply(array), ranges[index] if index in code.ranges else None)
        for index, (array, tensor, schema) in enumerate(zip(inputs, task.inputs, code.inputs, strict=True))
    ]
    packed += [packing.apply(array) for array, packing in zip(weights, code.packings, strict=True)]
    packed += [ranges[each].numbers for each in code.ranges]
    values = {f"a{index}": np.ascontiguousarray(each).ravel() for index, each in enumerate(packed)}
    texts = {_name(text): text for text in code.kernel.executables()}
    counts = []
    for name, kernel, arguments in _DISPATCH.findall(code.body):
        text = texts[kernel]
        result = types_of(text)[-1]
        values[name] = np.zeros(result.elements, result.numpy_dtype)
        given = [values[part.strip().removeprefix("%")] for part in arguments.split(",")]
        counts.append(run_kernel(text, [*given, values[name]]))
    found = values["r"] if None not in code.ranges else ranges[None].dequantise(values["r"])
    return _logical(found, task.results[0], code.output.layout), counts


def _stored(array: np.ndarray, numbers: QuantisedRange | None) -> np.ndarray:
    return array if numbers is None else numbers.quantise(array)


def _name(text: str) -> str:
    found = re.search(r"hal\.executable private @(\w+)", text)
    if found is None:
        raise ValueError("the text is not that of an executable")
    return found[1]


def _logical(array: np.ndarray, tensor: TensorType, layout: str) -> np.ndarray:
    """An array in ``layout`` in ONNX's layout."""
    places = layout_packing(tensor, layout).apply(np.arange(tensor.elements).reshape(tensor.shape))
    result = np.empty(tensor.elements, array.dtype)
    result[places.ravel()] = array
    return result.reshape(tensor.shape)
