"""Shape inference: what it costs and finds out; and weights that stay in the file."""

from __future__ import annotations

import hashlib
import math
import resource
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import ModelProto, TensorProto, external_data_helper, numpy_helper, shape_inference

from sartor.errors import UnsupportedModelError
from sartor.onnx_model.graphs.held_data import HELD_BYTES, held_array, held_data, holding, is_holding, serialised
from sartor.onnx_model.graphs.infer import infer_shapes, range_length
from sartor.onnx_model.graphs.tensor_data import to_array
from sartor.onnx_model.preparing.prepare import prepare
from sartor.onnx_model.reading.load import load_model
from sartor.onnx_model.rewrites.structure.fold_constants import fold_constants
from tests.plugin.onnx_model.builders import Array, ints, model, node

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


SHAPE = (129, 257)
TYPES: list[Any] = [np.float32, np.float16, ml_dtypes.bfloat16, np.float64, np.int8, np.uint8, np.int64]


def _values(dtype: Any) -> Array:
    drawn: Array = np.random.default_rng(0).integers(-100, 100, (4, *SHAPE)).astype(dtype)
    return drawn


def _model(values: Array) -> ModelProto:
    kind = TensorProto.FLOAT
    nodes = [node("Shape", ["w"], ["t"]), node("Cast", ["t"], ["u"], to=kind), node("Add", ["x", "u"], ["y"])]
    return model(nodes, [("x", (3,), kind)], ["y"], {"w": values, "small": np.arange(5.0, dtype=np.float32)})


def _network() -> ModelProto:
    weight = np.random.default_rng(1).standard_normal((64, 3, 11, 11)).astype(np.float32)
    nodes = [node("Conv", ["x", "w", "b"], ["c"]), node("Relu", ["c"], ["y"])]
    return model(nodes, [("x", (1, 3, 16, 16), TensorProto.FLOAT)], ["y"], {"w": weight, "b": weight[:, 0, 0, 0]})


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    return tmp_path / "model.onnx"


@pytest.fixture(params=["inside", "beside"])
def network(request: pytest.FixtureRequest, saved: Path) -> Path:
    built = _network()
    if request.param == "beside":
        external_data_helper.convert_model_to_external_data(built, location="w.bin")
        external_data_helper.write_external_data_tensors(built, str(saved.parent))
    saved.write_bytes(built.SerializeToString())
    return saved


@pytest.mark.parametrize("dtype", TYPES)
def test_held_values_are_the_files(saved: Path, dtype: Any) -> None:
    values = _values(dtype)
    saved.write_bytes(_model(values).SerializeToString())
    with holding():
        tensor, small = load_model(saved).graph.initializer
        assert not tensor.raw_data
        assert len(tensor.SerializeToString()) < 100
        np.testing.assert_array_equal(to_array(tensor), values)
        assert to_array(tensor).dtype == values.dtype
        assert held_data(small) is None


def test_a_network_is_prepared_alike(network: Path) -> None:
    plain = prepare(load_model(network)).model
    with holding():
        found = prepare(load_model(network)).model
        assert sum(held_array(tensor) is not None for tensor in found.graph.initializer) == 1
        assert b"".join(serialised(found)) == plain.SerializeToString(deterministic=True)


def test_nothing_is_held_outside(network: Path) -> None:
    assert not is_holding()
    loaded = load_model(network)
    assert all(tensor.raw_data and not tensor.external_data for tensor in loaded.graph.initializer)


def test_a_tensor_inside_a_node_is_read(saved: Path) -> None:
    values = np.ones(HELD_BYTES, np.float32)
    tensor = numpy_helper.from_array(values, "w")
    external_data_helper.set_external_data(tensor, "w.bin")
    tensor.ClearField("raw_data")
    (saved.parent / "w.bin").write_bytes(values.tobytes())
    nodes = [node("Constant", [], ["w"], value=tensor), node("Add", ["x", "w"], ["y"])]
    saved.write_bytes(model(nodes, [("x", (1,), TensorProto.FLOAT)], ["y"]).SerializeToString())
    with holding():
        (constant, _) = load_model(saved).graph.node
        assert constant.attribute[0].t.raw_data == values.tobytes()


def test_data_that_does_not_fit_the_shape_is_refused(saved: Path) -> None:
    built = _model(_values(np.float32))
    built.graph.initializer[0].dims[0] = 2
    saved.write_bytes(built.SerializeToString())
    with holding(), pytest.raises(UnsupportedModelError, match=r"'w' has .* bytes of data where its shape"):
        load_model(saved)


@pytest.mark.parametrize("length", [1, 1000, 100_000])
def test_a_truncated_file_is_refused_alike(network: Path, length: int) -> None:
    content = network.read_bytes()
    network.write_bytes(content[: min(length, len(content) - 1)])
    messages = []
    for _ in range(2):
        with pytest.raises(UnsupportedModelError) as plain:
            load_model(network)
        with holding(), pytest.raises(UnsupportedModelError) as held:
            load_model(network)
        messages.append((str(plain.value), str(held.value)))
    assert all(first == second for first, second in messages)


def test_the_file_is_left_alone(network: Path) -> None:
    before = hashlib.sha256(network.read_bytes()).hexdigest()
    with holding():
        prepare(load_model(network))
    assert hashlib.sha256(network.read_bytes()).hexdigest() == before
