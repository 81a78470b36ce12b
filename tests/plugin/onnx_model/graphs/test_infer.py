"""Shape inference: what it costs, and what it finds out."""

from __future__ import annotations

import math
import resource

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, shape_inference

from sartor.onnx_model.graphs.infer import infer_shapes, range_length
from sartor.onnx_model.rewrites.structure.fold_constants import fold_constants
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


def test_normalisations_that_onnx_does_not_infer_keep_the_shape() -> None:
    nodes = [
        node("GroupNormalization", ["x", "scale", "scale"], ["a"], num_groups=3),
        node("MeanVarianceNormalization", ["a"], ["b"]),
        node("Flatten", ["b"], ["y"]),
    ]
    built = model(nodes, [("x", (2, 6, 3, 5), _FLOAT)], ["y"], {"scale": np.ones(6, np.float32)}, opset=21)
    infer_shapes(built)
    assert [each.dim_value for each in built.graph.output[0].type.tensor_type.shape.dim] == [2, 90]
    assert list(built.graph.node) == nodes


@pytest.mark.parametrize(("operator", "passes"), [("Relu", [{}]), ("NonZero", [{}, {"data_prop": True}])])
def test_data_is_propagated_only_if_a_shape_is_open(
    operator: str, passes: list[dict[str, bool]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each pass reads the whole model."""
    inferring, seen = shape_inference.infer_shapes, list[dict[str, bool]]()

    def counted(given: ModelProto, **options: bool) -> ModelProto:
        seen.append(options)
        return inferring(given, **options)

    monkeypatch.setattr(shape_inference, "infer_shapes", counted)
    infer_shapes(model([node(operator, ["x"], ["y"])], [("x", (3, 5), _FLOAT)], ["y"]))
    assert seen == passes


def test_elements_of_long_vectors_are_not_taken_for_sizes() -> None:
    """Two million elements took 300 MiB."""
    built = model([node("Concat", ["x", "x"], ["y"], axis=0)], [("x", (1 << 21,), _FLOAT)], ["y"])
    before = _most_memory()
    infer_shapes(built)
    assert _most_memory() - before < 100 * _MIB
    assert [each.dim_value for each in built.graph.output[0].type.tensor_type.shape.dim] == [1 << 22]


def test_elements_of_long_ranges_are_not_written_down() -> None:
    """A Range of 10^12 elements took all memory."""
    bounds = {"start": np.float32(0), "limit": np.float32(1e9), "delta": np.float32(1)}
    built = model([node("Range", list(bounds), ["y"])], [], ["y"], bounds)
    before = _most_memory()
    infer_shapes(built)
    assert _most_memory() - before < 100 * _MIB
    assert [each.dim_value for each in built.graph.output[0].type.tensor_type.shape.dim] == [10**9]


@pytest.mark.parametrize(
    ("operator", "inputs"), [("ConstantOfShape", ["long"]), ("Expand", ["x", "long"]), ("Tile", ["x", "long"])]
)
def test_elements_of_vectors_of_constant_length_are_not_written_down(operator: str, inputs: list[str]) -> None:
    """A vector of 2^36 elements took all memory, or time without end."""
    nodes = [node(operator, inputs, ["v"]), node("Add", ["v", "x"], ["y"])]
    built = model(nodes, [("x", (1,), _FLOAT)], ["y"], {"long": ints(1 << 22)})
    before = _most_memory()
    infer_shapes(built)
    assert _most_memory() - before < 100 * _MIB
    assert [each.dim_value for each in built.graph.output[0].type.tensor_type.shape.dim] == [1 << 22]


@pytest.mark.parametrize(
    ("operator", "inputs", "shape"),
    [("Reshape", ["x", "flat"], (64, 256, 256)), ("Pad", ["x", "ends"], (8,)), ("Concat", ["x"] * 4, (1 << 20,))],
)
def test_elements_of_vectors_made_of_other_tensors_are_not_written_down(
    operator: str, inputs: list[str], shape: tuple[int, ...]
) -> None:
    """A Reshape of 2^26 elements, added, took 10 GiB and a minute."""
    options = {"axis": 0} if operator == "Concat" else {}
    nodes = [node(operator, inputs, ["v"], **options), node("Add", ["v", "v"], ["y"])]
    built = model(nodes, [("x", shape, _FLOAT)], ["y"], {"flat": ints(-1), "ends": ints(0, (1 << 22) - 8)})
    before = _most_memory()
    infer_shapes(built)
    assert _most_memory() - before < 100 * _MIB
    assert [each.dim_value for each in built.graph.output[0].type.tensor_type.shape.dim] == [1 << 22]


def test_vectors_of_computed_length_are_not_written_down() -> None:
    """Only propagation of data tells the length, and then it writes out the elements."""
    nodes = [
        node("Size", ["x"], ["n"]),
        node("Unsqueeze", ["n", "axis"], ["s"]),
        node("Reshape", ["x", "s"], ["v"]),
        node("Add", ["v", "v"], ["y"]),
    ]
    built = model(nodes, [("x", (64, 256, 256), _FLOAT)], ["y"], {"axis": ints(0)})
    before = _most_memory()
    fold_constants(built)
    assert _most_memory() - before < 100 * _MIB
    assert [each.dim_value for each in built.graph.output[0].type.tensor_type.shape.dim] == [1 << 22]


def test_a_step_over_everything_is_counted_once() -> None:
    """Inference added the step until its integers overflowed, without end."""
    operands = {"first": ints(2**62), "last": ints(-(2**63)), "axis": ints(0), "step": ints(-(2**62))}
    built = model([node("Slice", ["x", *operands], ["y"])], [("x", (4,), _FLOAT)], ["y"], operands)
    infer_shapes(built)
    assert [each.dim_value for each in built.graph.output[0].type.tensor_type.shape.dim] == [1]


@pytest.mark.parametrize(
    ("bounds", "length"),
    [((0, 5, 2), 3), ((5, 0, -1), 5), ((0, 5, -1), 0), ((0, 5, 0), 0), ((0, math.inf, 1), math.inf)],
)
def test_length_of_a_range(bounds: tuple[float, float, float], length: float) -> None:
    assert range_length(*bounds) == length


def _most_memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
