"""Builds small ONNX models for tests, and runs them in ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from sartor.reference.trusted.reference_model import ReferenceModel

Array = np.ndarray[Any, Any]
Value = tuple[str, Sequence[int | str] | None, int]

FLOAT, FLOAT16, INT64 = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.INT64
MS = "com.microsoft"
X: list[Value] = [("x", (2, 3, 7, 9), FLOAT)]
"""An image, the input of most cases."""


def node(operator: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: Any) -> NodeProto:
    """A node named after its operator, unless ``name`` is given."""
    attributes.setdefault("name", operator.lower())
    return helper.make_node(operator, inputs, outputs, **attributes)


def model(
    nodes: Sequence[NodeProto],
    inputs: Sequence[Value],
    outputs: Sequence[str | Value],
    constants: Mapping[str, Any] | None = None,
    opset: int = 17,
) -> ModelProto:
    """A model; outputs given by name alone are float and have no declared shape."""
    typed = [(output, None, FLOAT) if isinstance(output, str) else output for output in outputs]
    graph = helper.make_graph(
        list(nodes),
        "graph",
        [helper.make_tensor_value_info(name, kind, shape) for name, shape, kind in inputs],
        [helper.make_tensor_value_info(name, kind, shape) for name, shape, kind in typed],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in (constants or {}).items()],
    )
    imports = [helper.make_opsetid("", opset)]
    if any(item.domain == MS for item in nodes):
        imports.append(helper.make_opsetid(MS, 1))
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


class Cases(dict[str, Callable[[], ModelProto]]):
    """Models by name, each built when it is asked for."""

    def add(self, name: str, *arguments: Any, **options: Any) -> None:
        """Add ``model(*arguments, **options)``."""
        assert name not in self
        self[name] = lambda: model(*arguments, **options)


def ints(*values: int) -> Array:
    """Integers as shapes and indices are given."""
    return np.array(values, np.int64)


def weights(*shape: int, seed: int = 0, scale: float = 1.0) -> Array:
    """Normal float32 values."""
    return (np.random.default_rng(seed).standard_normal(shape) * scale).astype(np.float32)


def run(built: ModelProto, feeds: Mapping[str, Array]) -> dict[str, Array]:
    """Outputs by name from ONNX Runtime without its optimisations, with exact products of integers."""
    reference = ReferenceModel(built.SerializeToString(), threads=1, optimises=False, cuts=False)
    return dict(zip(reference.output_names, reference(feeds), strict=True))


def relative_error(actual: Array, expected: Array) -> float:
    """Largest difference relative to the largest expected value."""
    assert actual.shape == expected.shape
    assert actual.dtype == expected.dtype
    if not expected.size:
        return 0.0
    wide, reference = actual.astype(np.float64), expected.astype(np.float64)
    return float(np.abs(wide - reference).max() / max(float(np.abs(reference).max()), 1e-30))
