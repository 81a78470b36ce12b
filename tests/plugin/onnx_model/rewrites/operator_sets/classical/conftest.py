"""Compares nodes of ai.onnx.ml, as they are prepared, with ONNX Runtime's kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper
from onnxruntime import InferenceSession, SessionOptions

from tests.plugin.onnx_model.conftest import Load, Prepare

Array = np.ndarray[Any, Any]
Check = Callable[..., ModelProto]
_TYPES = {"tensor(float)": TensorProto.FLOAT, "tensor(double)": TensorProto.DOUBLE, "tensor(int64)": TensorProto.INT64}


def classical(
    operator: str, inputs: Sequence[Array], outputs: Sequence[str] = ("y",), version: int = 3, **attributes: Any
) -> ModelProto:
    """A model of one node of ai.onnx.ml, called ``odd``, that reads ``x0, x1, …``."""
    names = [f"x{index}" for index in range(len(inputs))]
    node = helper.make_node(operator, names, outputs, name="odd", domain="ai.onnx.ml", **attributes)
    given = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in zip(names, inputs, strict=True)
    ]
    graph = helper.make_graph([node], "graph", given, [helper.make_empty_tensor_value_info(name) for name in outputs])
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", version)]
    return helper.make_model(graph, opset_imports=imports, ir_version=9)


def _run(model: ModelProto, inputs: Sequence[Array]) -> tuple[list[Array], list[int]]:
    """A model's outputs in ONNX Runtime, and their element types."""
    options = SessionOptions()
    options.log_severity_level = 3
    session = InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    found = session.run(None, {f"x{index}": array for index, array in enumerate(inputs)})
    return [np.asarray(each) for each in found], [_TYPES.get(output.type, 0) for output in session.get_outputs()]


@pytest.fixture
def check(save_and_load: Load, prepare_quickly: Prepare) -> Check:
    """Prepare a node as ``classical`` takes it, compare it with ONNX Runtime's, and return the prepared model."""

    def checked(operator: str, inputs: Sequence[Array], outputs: Sequence[str] = ("y",), **options: Any) -> ModelProto:
        tolerance = options.pop("tolerance", 2e-6)
        built = classical(operator, inputs, outputs, **options)
        expected, kinds = _run(built, inputs)
        for output, kind, array in zip(built.graph.output, kinds, expected, strict=True):
            output.CopyFrom(helper.make_tensor_value_info(output.name, kind, array.shape))
        shapes = {f"x{index}": array.shape for index, array in enumerate(inputs)}
        prepared = prepare_quickly(save_and_load(built), shapes).model
        assert all(not node.domain for node in prepared.graph.node)
        actual, _ = _run(prepared, inputs)
        for left, right in zip(actual, expected, strict=True):
            assert left.dtype == right.dtype
            np.testing.assert_allclose(left, right, tolerance, tolerance)
        return prepared

    return checked
