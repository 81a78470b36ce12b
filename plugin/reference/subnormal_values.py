"""Finds subnormal numbers in a model whose module is wrong: IREE computes with them as with 0.

IREE lets the processor take subnormal numbers for 0, and replace subnormal results by 0, while a module runs: they take
a hundred times as long. ONNX Runtime does not. Those of f16 become normal numbers when they are widened.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from onnx import ModelProto, TensorProto, helper

from sartor.errors import CompileError, SartorError, WrongOutputsError
from sartor.onnx_model.graphs.prepared import prepared_model
from sartor.onnx_model.graphs.tensor_data import to_array
from sartor.onnx_model.graphs.walk import describe_node, tensors
from sartor.onnx_model.reading.load import load_model
from sartor.reference.trusted.reference_model import ReferenceModel
from sartor.runtime.driver.signature import Array
from sartor.tuning.workers.calls import call
from sartor.tuning.workers.pool import WorkerPool

_SMALLEST_NORMAL = {np.dtype(np.float32): 2.0**-126, np.dtype(np.float64): 2.0**-1022}
_TYPES = (TensorProto.FLOAT, TensorProto.DOUBLE)
# Values inside the network are kept for one run; those of larger networks are not looked through.
_MOST_VALUES = 2000


@contextmanager
def explaining_wrong_outputs(
    pool: WorkerPool, path: Path, prepared: Path | bytes, feeds: Mapping[str, Array]
) -> Iterator[None]:
    """Add to the error that no plan is right that the model computes with subnormal numbers, if it does.

    Args:
        pool: its settings are used for a worker.
        path: the user's file.
        prepared: the prepared model.
        feeds: inputs on which the model is looked at.

    Raises:
        CompileError: in place of a ``WrongOutputsError``.
    """
    try:
        yield
    except WrongOutputsError as error:
        arguments = {"path": path.resolve(), "prepared": prepared, "feeds": feeds}
        try:
            with pool.beside() as single:
                few = call(single, subnormal_values, arguments, "looking for subnormal numbers")
        except SartorError:
            raise error from None
        if not few:
            raise
        reason = str(error).partition(";")[0]
        raise CompileError(
            f"{reason}; {few} numbers below 1.2e-38 (subnormal ones), with which a module computes as with 0; scale "
            "the model's numbers, or replace these by 0 before exporting"
        ) from None


def subnormal_values(path: Path, prepared: Path | bytes, feeds: Mapping[str, Array]) -> str:
    """Worker side: name a weight that has subnormal numbers, or a node that computes them; empty if there is none."""
    for tensor, _ in tensors(load_model(path)):
        if tensor.data_type in _TYPES and all(tensor.dims) and is_subnormal(to_array(tensor)):
            return f"the weight '{tensor.name}' has"
    model = ModelProto()
    model.CopyFrom(prepared_model(prepared))
    names = _values(model)
    if len(names) > _MOST_VALUES:
        return ""
    known = {value.name for value in model.graph.output}
    model.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in names if name not in known)
    reference = ReferenceModel(model.SerializeToString(), optimises=False, cuts=False)
    arrays = dict(zip(reference.output_names, reference(feeds), strict=True))
    return next((f"{node} computes" for name, node in names.items() if is_subnormal(arrays[name])), "")


def is_subnormal(values: Array) -> bool:
    """Whether a number among float32 or float64 values is subnormal."""
    smallest = _SMALLEST_NORMAL.get(values.dtype)
    if smallest is None:
        return False
    size = np.abs(values)
    return bool(((size < smallest) & (size > 0)).any())


def _values(model: ModelProto) -> dict[str, str]:
    """Names of all values that nodes of the outer graph compute, with a description of the node."""
    return {name: describe_node(node) for node in model.graph.node for name in node.output if name}
