"""Facts about a task as one line of text: the features of the cost model, which the database keeps.

They are those of ACLTuner (Kwon et al., 2023, section 2.2), sizes of input, weights and result, padding and stride, in
terms of this package's kernels.
"""

from __future__ import annotations

import functools
import math

from sartor.codegen.analysis.convolution import convolution_of, window_of
from sartor.codegen.analysis.operation_count import operation_count
from sartor.codegen.analysis.task_bounds import Numbers
from sartor.codegen.ir.encoding import parts_of_rows
from sartor.codegen.ir.layer import LayerKind, Task
from sartor.codegen.ir.layouts import IMAGE_RANK


@functools.lru_cache(maxsize=1024)
def task_facts(task: Task) -> str:
    """``convolution batch=1 rows=56 …``: the kind, then numbers by name.

    ``batch``, ``rows``, ``columns`` and ``channels`` are extents of the result. ``depth`` is the number of products in
    one of its elements, ``taps`` is ``kernel_height`` times ``kernel_width``. ``read``, ``weights`` and ``written`` are
    bytes.
    """
    numbers = {**extents_of(task), **_window(task), **_amounts(task)}
    numbers["depth"] = max(1, numbers["operations"] // (2 * max(1, task.results[0].elements)))
    return write_facts(str(task.kind), numbers)


def write_facts(kind: str, numbers: Numbers) -> str:
    """The line that ``read_facts`` reads."""
    return " ".join([kind, *(f"{name}={value}" for name, value in sorted(numbers.items()))])


def extents_of(task: Task) -> Numbers:
    """The extents of a task's result, by name."""
    shape = task.results[0].shape
    # Networks of open sizes have their channels last.
    if len(shape) == IMAGE_RANK and task.kind is not LayerKind.CONTRACTION and task.opened is None:
        batch, channels, rows, columns = shape
        return {"batch": batch, "rows": rows, "columns": columns, "channels": channels}
    *others, channels = shape or (1,)
    *batches, rows = others or (1,)
    return {"batch": math.prod(batches), "rows": 1, "columns": rows, "channels": channels}


def _window(task: Task) -> Numbers:
    if task.kind is LayerKind.CONVOLUTION and (convolution := convolution_of(task)):
        (height, width), strides, dilations = convolution.filter.shape[2:], convolution.strides, convolution.dilations
    elif task.kind in (LayerKind.DEPTHWISE, LayerKind.POOLING) and (window := window_of(task)):
        (height, width), strides, dilations = window.kernel, window.strides, window.dilations
    else:
        (height, width), strides, dilations = (1, 1), (1, 1), (1, 1)
    sizes = {"taps": height * width, "kernel_height": height, "kernel_width": width}
    return {**sizes, "stride": max(strides), "dilation": max(dilations)}


def _amounts(task: Task) -> Numbers:
    # What one row needs, where a part of each is not zero: with more rows more of the weight is read.
    parts = parts_of_rows(task)
    return {
        "operations": operation_count(task) // parts,
        "operands": len(task.inputs),
        "read": sum(tensor.bytes for tensor in task.inputs),
        "weights": sum(weight.bytes for weight in task.weights) // parts,
        "written": sum(result.bytes for result in task.results),
    }
