"""Shape inference: what it costs, and what it finds out."""

from __future__ import annotations

import resource

from onnx import TensorProto

from sartor.onnx_model.graphs.infer import infer_shapes
from tests.plugin.onnx_model.builders import ints, model, node

_FLOAT = TensorProto.FLOAT
_MIB = 1 << 20


def test_sizes_are_propagated_through_computations_of_shapes() -> None:
    built = model(
        [node("Shape", ["x"], ["s"]), node("Mul", ["s", "two"], ["t"]), node("Expand", ["c", "t"], ["y"])],
        [("x", (3, 5), _FLOAT), ("c", (1,), _FLOAT)],
        ["y"],
        {"two": ints(2, 2)},
    )
    infer_shapes(built)
    assert [each.dim_value for each in built.graph.output[0].type.tensor_type.shape.dim] == [6, 10]


def test_elements_of_long_vectors_are_not_taken_for_sizes() -> None:
    """Two million elements took 300 MiB."""
    built = model([node("Concat", ["x", "x"], ["y"], axis=0)], [("x", (1 << 21,), _FLOAT)], ["y"])
    before = _most_memory()
    infer_shapes(built)
    assert _most_memory() - before < 100 * _MIB
    assert [each.dim_value for each in built.graph.output[0].type.tensor_type.shape.dim] == [1 << 22]


def _most_memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
