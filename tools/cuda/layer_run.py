"""Runs a layer's kernels by the interpreter, from arrays in ONNX's layouts to one."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from sartor.codegen.ir.layer import Task, TensorType
from sartor.codegen.ir.layouts import layout_packing
from sartor.codegen.ir.variants.routine import Implementation
from tools.cuda.interpreter import Counts, run_kernel, types_of

_DISPATCH = re.compile(r"%(\w+) = flow\.dispatch @\w+::@\w+::@(\w+)\(([^)]*)\)")


def run_layer(
    code: Implementation, task: Task, inputs: Sequence[np.ndarray], weights: Sequence[np.ndarray]
) -> tuple[np.ndarray, list[Counts]]:
    """The result of a layer, in ONNX's layout, and what each kernel did.

    Args:
        code: of the layer; its kernels are those of a GPU.
        task: the layer.
        inputs: activations in ONNX's layout.
        weights: as ONNX has them.

    Raises:
        KernelFault: if a kernel is wrong.
        ValueError: if the code has no kernels.
    """
    if code.kernel is None:
        raise ValueError("the layer's code is IREE's")
    packed = [
        schema.packing(tensor).apply(array)
        for array, tensor, schema in zip(inputs, task.inputs, code.inputs, strict=True)
    ]
    packed += [packing.apply(array) for array, packing in zip(weights, code.packings, strict=True)]
    values = {f"a{index}": np.ascontiguousarray(each).ravel() for index, each in enumerate(packed)}
    texts = {_name(text): text for text in code.kernel.executables()}
    counts = []
    for name, kernel, arguments in _DISPATCH.findall(code.body):
        text = texts[kernel]
        result = types_of(text)[-1]
        values[name] = np.zeros(result.elements, result.numpy_dtype)
        given = [values[each.strip().removeprefix("%")] for each in arguments.split(",")]
        counts.append(run_kernel(text, [*given, values[name]]))
    return _logical(values["r"], task.results[0], code.output.layout), counts


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
