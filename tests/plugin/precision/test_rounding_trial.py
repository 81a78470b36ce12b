"""Sensitivity: one layer rounded in ONNX Runtime moves the outputs as the same rounding in numpy does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from onnx import ModelProto, TensorProto

from sartor.codegen.ir.encoding import BlockEncoding
from sartor.codegen.ir.packing import rounded_mantissa
from sartor.codegen.ir.variants.rounding import FACTOR, LEAST_STEP, LEVELS, MOST_LEVELS, REACH, ROWS, STORED, WEIGHTS
from sartor.errors import UsageError
from sartor.frontend.imported_model import ImportedModel
from sartor.frontend.layer_tensors import LayerTensors, layer_tensors
from sartor.onnx_model.graphs.infer import infer_shapes
from sartor.precision.precision_switches import PrecisionSwitches, add_switches
from sartor.precision.rounding_trial import RoundingTrial
from sartor.precision.sensitivity_job import Experiment, Rounded, round_layers
from sartor.reference.expected_outputs import Disturbed
from sartor.reference.random_inputs import sample_inputs
from sartor.reference.trusted.reference_model import ReferenceModel
from sartor.runtime.driver.signature import Array
from sartor.runtime.output_error import relative_error
from sartor.samples.given_samples import HeldSamples
from sartor.tuning.calibration.quantised_range import QuantisedRange
from sartor.tuning.errors.error_measures import ErrorMeasure, MeasureKind
from sartor.tuning.workers.pool import WorkerPool
from tests.importing import imported_model
from tests.tiny_models import Builder

DTYPES = ("tf32", "bf16", "f16", "i8", "i4")
ROUNDINGS = (*DTYPES, STORED, WEIGHTS, ROWS, FACTOR)
# What leaves values as they are, or quantises them itself.
KEEPING = (WEIGHTS, ROWS, FACTOR, "i4")
RANDOM = np.random.default_rng(5)


def _dyadic(shape: tuple[int, ...], below: int, step: float) -> Array:
    return np.asarray(RANDOM.integers(-below, below, shape, endpoint=True) * np.float32(step), np.float32)


# Numbers of few bits: whatever the order of the sums, the hidden layer's are exact, and rounded alike everywhere.
X = _dyadic((3, 4, 8), 511, 2**-8)
FIRST, SECOND = _dyadic((8, 16), 127, 2**-6), _dyadic((16, 5), 127, 2**-6)
FIRST[0], SECOND[0] = 127 * 2**-6, -127 * 2**-6
SAMPLES = HeldSamples(tuple({"x": each} for each in X))
RANGES = {
    "x": QuantisedRange(2**-6, 0, "int8"),
    "hidden": QuantisedRange(2**-4, 0, "uint8"),
    "y": QuantisedRange(2**-2, 3, "int8"),
}
LAYERS = [
    LayerTensors("one", ("x",), ("hidden",), ("product", "hidden")),
    LayerTensors("two", ("hidden",), ("y",), ("y",)),
]


def _model() -> ModelProto:
    b = Builder()
    hidden = b.op("Relu", "hidden", b.op("MatMul", "product", "x", b.constant(FIRST)))
    b.op("MatMul", "y", hidden, b.constant(SECOND))
    model = b.model([("x", (4, 8))], [("y", (4, 5))])
    infer_shapes(model)
    return model


def _round(dtype: str, tensor: str, values: Array) -> Array:
    if dtype == "tf32":
        return rounded_mantissa(values, 10)
    if dtype in ("i8", STORED, FACTOR):
        return np.asarray(RANGES[tensor].round(values).astype(np.float32))
    return np.asarray(values.astype(ml_dtypes.bfloat16 if dtype == "bf16" else np.float16).astype(np.float32))


def _round_rows(values: Array) -> Array:
    first = REACH * np.abs(values).mean(1, keepdims=True)
    bound = np.float32(REACH) * np.where(np.abs(values) <= first, np.abs(values), 0).mean(1, keepdims=True)
    least, most = np.minimum(values.min(1, keepdims=True), 0), np.maximum(values.max(1, keepdims=True), 0)
    low = np.maximum(least, -bound)
    fine, coarse = (np.minimum(most, bound) - low) / LEVELS, (most - least) / MOST_LEVELS
    step = np.maximum(np.maximum(fine, coarse), np.float32(LEAST_STEP))
    return np.asarray(np.rint((values - low) / step) * step + low)


def _round_weight(dtype: str, values: Array) -> Array:
    if dtype not in ("i8", *KEEPING):
        return values if dtype == STORED else _round(dtype, "", values)
    if dtype == "i4":
        of = BlockEncoding(4, 32, *values.shape)
        return of.decoded(*of.rounded(values)).astype(np.float32)
    scales = np.abs(values).max(axis=0) / 127
    return np.asarray(np.rint(values / scales) * scales)


def _expected(x: Array, assignment: Mapping[str, str]) -> Array:
    """The outputs, computed in numpy."""
    value, weights = x, {"one": FIRST, "two": SECOND}
    for layer in LAYERS:
        weight, dtype = weights[layer.layer], assignment.get(layer.layer)
        before, after = str(layer.inputs[0]), str(layer.result)
        if dtype is not None:
            if dtype not in (WEIGHTS, "i4"):
                value = _round_rows(value) if dtype == ROWS else _round(dtype, before, value)
            weight = _round_weight(dtype, weight)
        value = np.maximum(value @ weight, 0) if layer.layer == "one" else value @ weight
        value = value if dtype in (None, "tf32", *KEEPING) else _round(dtype, after, value)
    return value


def _errors(assignment: Mapping[str, str]) -> list[float]:
    """Of the outputs of each sample, by their scales."""
    disturbed, found = Disturbed(_model(), threads=1, narrow=True), []
    for x in X:
        right = [_expected(x, {})]
        scales = disturbed.scales(right, disturbed({"x": x}))
        found.append(relative_error([_expected(x, assignment)], right, scales=scales))
    return found


@pytest.fixture(scope="module")
def trial(pool: WorkerPool) -> RoundingTrial:
    return RoundingTrial(_model().SerializeToString(), LAYERS, DTYPES, RANGES, SAMPLES, pool)


ASSIGNMENTS: list[dict[str, str]] = [
    *({layer.layer: dtype} for layer in LAYERS for dtype in ROUNDINGS),
    {"one": STORED, "two": "i8"},
    {"one": "i8", "two": "bf16"},
    {"one": "i8", "two": "i8"},
    {},
]


@pytest.mark.parametrize("assignment", ASSIGNMENTS, ids=str)
def test_a_switched_model_computes_what_numpy_does(assignment: dict[str, str]) -> None:
    model = _model()
    switches = PrecisionSwitches.of(model, LAYERS, DTYPES, RANGES)
    precision = add_switches(model, switches)
    reference = ReferenceModel(model.SerializeToString(), threads=1)
    for x in X:
        (found,) = reference({"x": x, precision: switches.codes(assignment)})
        # What lies between two numbers may be rounded either way, as the outputs are not quite exact.
        steps = {"bf16": (2**-7, 0), "f16": (2**-10, 0), "i8": (0, 2**-2), STORED: (0, 2**-2)}
        near, step = steps.get(assignment.get("two", ""), (0, 0))
        np.testing.assert_allclose(found, _expected(x, assignment), rtol=1e-6 + near, atol=1e-5 + step)
        # The input and the first weights have no more bits than TF32 keeps, and all weights 8.
        is_exact = assignment in ({}, {"one": "tf32"}) or set(assignment.values()) == {WEIGHTS}
        assert np.array_equal(found, _expected(x, {})) == is_exact


def test_layers_that_compute_parts_of_one_node_are_switched_apart() -> None:
    b = Builder()
    b.ops("Split", ["left", "right"], "x", b.constant(np.array([4, 4])), axis=1)
    model = b.model([("x", (1, 8))], [("left", (1, 4)), ("right", (1, 4))])
    infer_shapes(model)
    layers = [LayerTensors(f"split {name}", ("x",), (name,), ("left",)) for name in ("left", "right")]
    switches = PrecisionSwitches.of(model, layers, ("f16",), {})
    precision = add_switches(model, switches)
    reference = ReferenceModel(model.SerializeToString(), threads=1)
    x = np.linspace(0.1, 0.9, 8, dtype=np.float32).reshape(1, 8)
    left, right = reference({"x": x, precision: switches.codes({"split right": "f16"})})
    np.testing.assert_array_equal(left, x[:, :4])
    np.testing.assert_array_equal(right, x[:, 4:].astype(np.float16).astype(np.float32))
    assert not np.array_equal(right, x[:, 4:])


def test_contributions_are_the_errors_of_single_layers(trial: RoundingTrial) -> None:
    found = trial.for_pairs()
    assert set(found) == {(layer, dtype) for layer in ("one", "two") for dtype in ROUNDINGS}
    for (layer, dtype), errors in found.items():
        assert errors.samples == pytest.approx(_errors({layer: dtype}), rel=0.3)
    assert max(found["one", "f16"].samples) < max(found["one", "bf16"].samples) < max(found["one", "i8"].samples)


def test_filters_stay_what_they_are_where_8_bits_are_only_stored(pool: WorkerPool) -> None:
    """All but one weight of a channel are nothing beside it in 8 bits, and that one is multiplied by zero."""
    b = Builder()
    weight = np.full((8, 5), 0.25, np.float32)
    weight[0] = 100
    b.op("MatMul", "y", "x", b.constant(weight))
    model = b.model([("x", (4, 8))], [("y", (4, 5))])
    infer_shapes(model)
    x = np.abs(X[0]) * (np.arange(8) > 0)
    ranges = {"x": QuantisedRange(2**-6, -128, "int8"), "y": QuantisedRange(2**-5, -128, "int8")}
    layers = [LayerTensors("y", ("x",), ("y",), ("y",))]
    samples = HeldSamples(({"x": x.astype(np.float32)},))
    found = RoundingTrial(model.SerializeToString(), layers, ("i8",), ranges, samples, pool).for_pairs()
    assert max(found["y", "i8"].samples) == pytest.approx(1.0)
    assert max(found["y", STORED].samples) < 0.02
    assert max(found["y", WEIGHTS].samples) == pytest.approx(1.0)


def test_layers_may_be_rounded_together(trial: RoundingTrial) -> None:
    alone, both, none = trial.together([{"two": "i8"}, {"one": "i8", "two": "i8"}, {"unknown": "i8"}])
    assert alone.samples == trial.for_pairs()["two", "i8"].samples
    assert both.samples == pytest.approx(_errors({"one": "i8", "two": "i8"}), rel=0.3)
    assert none.samples == (0.0, 0.0, 0.0)


def test_fewer_samples_and_another_measure(trial: RoundingTrial, pool: WorkerPool) -> None:
    steps: list[tuple[int, int]] = []
    other = RoundingTrial(
        prepared=trial.prepared,
        layers=LAYERS,
        dtypes=("f16",),
        ranges={},
        samples=SAMPLES,
        pool=pool,
        measure=ErrorMeasure(MeasureKind.TOP1),
        most_samples=2,
        progress=lambda _, done, total: steps.append((done, total)),
    )
    found = other.for_pairs()
    assert {pair: len(errors.samples) for pair, errors in found.items()} == {("one", "f16"): 2, ("two", "f16"): 2}
    assert all(error in (0, 0.25, 0.5, 0.75, 1) for errors in found.values() for error in errors.samples)
    assert steps[0] == (0, 4)
    assert steps[-1] == (4, 4)


def test_what_is_right_is_computed_once_for_a_sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Large networks make one inference or two in a call, beside which the five of what is right would take longest."""
    path = tmp_path / "model.onnx"
    path.write_bytes(_model().SerializeToString())
    switches = PrecisionSwitches.of(_model(), LAYERS, DTYPES, RANGES)
    experiment = Experiment(path, switches, ASSIGNMENTS, SAMPLES, 2, ErrorMeasure(MeasureKind.RELATIVE), 1)
    computed: list[Mapping[str, Array]] = []
    disturbed = Disturbed.__call__

    def run(runs: Disturbed, feeds: Mapping[str, Array]) -> list[list[Array]]:
        computed.append(feeds)
        return disturbed(runs, feeds)

    monkeypatch.setattr(Disturbed, "__call__", run)
    found = Rounded()
    while found.done < experiment.runs:
        rounded = round_layers(experiment, found, seconds=0.0)
        assert isinstance(rounded, Rounded)
        found = rounded
    assert len(computed) == 2


def test_a_trial_goes_on_where_it_stopped(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(_model().SerializeToString())
    switches = PrecisionSwitches.of(_model(), LAYERS, DTYPES, RANGES)
    measure = ErrorMeasure(MeasureKind.RELATIVE)
    experiment = Experiment(path, switches, ASSIGNMENTS, SAMPLES, 2, measure, 1)
    whole = round_layers(experiment, Rounded(), seconds=60.0)
    assert isinstance(whole, Rounded)
    assert whole.done == experiment.runs
    for start in range(experiment.runs):
        before = Rounded(whole.errors[:start])
        assert round_layers(experiment, before, seconds=0.0) == Rounded(whole.errors[: start + 1])


def test_layers_without_names_or_ranges_are_left_out() -> None:
    nameless = LayerTensors("nameless", ("x",), (None,), ())
    found = PrecisionSwitches.of(_model(), [nameless, *LAYERS], DTYPES, {"x": RANGES["x"], "hidden": RANGES["hidden"]})
    assert found.pairs == [
        *(("one", dtype) for dtype in ROUNDINGS),
        *(("two", dtype) for dtype in DTYPES if dtype != "i8"),
        # Filters need no range, those of rows are found when they are multiplied, and that of the result is not needed.
        ("two", WEIGHTS),
        ("two", ROWS),
        ("two", FACTOR),
    ]


def test_what_has_no_filters_stores_8_bits_as_it_computes_in_them() -> None:
    b = Builder()
    b.op("Relu", "y", "x")
    model = b.model([("x", (4, 5))], [("y", (4, 5))])
    infer_shapes(model)
    found = PrecisionSwitches.of(model, [LayerTensors("y", ("x",), ("y",), ("y",))], DTYPES, RANGES)
    assert found.pairs == [("y", dtype) for dtype in DTYPES if dtype != "i4"]
    assert found.codes({"y": STORED}) == found.codes({"y": "i8"}) != found.codes({})


def test_errors_of_the_users_measure_reach_the_user(trial: RoundingTrial, pool: WorkerPool, tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("def error(outputs, expected):\n    raise KeyError('labels')\n", encoding="utf-8")
    measure = ErrorMeasure.parse(f"{tmp_path / 'own.py'}:error")
    broken = RoundingTrial(trial.prepared, LAYERS, ("f16",), {}, SAMPLES, pool, measure)
    with pytest.raises(UsageError, match="KeyError: 'labels'"):
        broken.for_pairs()


def test_half_precision_models_are_rounded_from_their_own_type(pool: WorkerPool) -> None:
    b = Builder()
    b.op("MatMul", "y", "x", b.constant(FIRST.astype(np.float16)))
    model = b.model([("x", (4, 8))], [("y", (4, 16))], TensorProto.FLOAT16)
    samples = HeldSamples(({"x": X[0].astype(np.float16)},))
    layers = [LayerTensors("y", ("x",), ("y",), ("y",))]
    ranges = {"x": RANGES["x"], "y": RANGES["y"]}
    found = RoundingTrial(model.SerializeToString(), layers, DTYPES, ranges, samples, pool).for_pairs()
    assert max(found["y", "f16"].samples) == 0.0
    assert 0 < max(found["y", "bf16"].samples) < 0.02
    assert 0 < max(found["y", "i8"].samples) < 0.1


def _contributions(imported: ImportedModel, pool: WorkerPool, dtypes: tuple[str, ...]) -> dict[tuple[str, str], float]:
    assert isinstance(imported.prepared, bytes)
    model = ModelProto.FromString(imported.prepared)
    layers = list(layer_tensors(model, imported.graph).values())
    samples = HeldSamples((sample_inputs(model, 0),))
    found = RoundingTrial(imported.prepared, layers, dtypes, {}, samples, pool).for_pairs()
    return {pair: max(errors.samples) for pair, errors in found.items()}


@pytest.mark.parametrize("name", ["residual", "silu", "layer_norm", "gelu", "split", "batch", "squeeze_excite"])
def test_every_layer_of_tiny_models_can_be_rounded(
    name: str, imported_of: Callable[[str], ImportedModel], pool: WorkerPool
) -> None:
    imported = imported_of(name)
    found = _contributions(imported, pool, ("bf16", "f16"))
    assert {layer for layer, _ in found} == {layer.name for layer in imported.graph.layers}
    for layer in imported.graph.layers:
        assert 0 < found[layer.name, "f16"] < found[layer.name, "bf16"] < 0.1


def test_a_real_model(model_folder: Path, pool: WorkerPool) -> None:
    imported = imported_model(model_folder / "mobilefacenet.onnx")
    found = _contributions(imported, pool, ("bf16",))
    assert len(found) == len(imported.graph.layers)
    assert all(0 < error < 0.05 for error in found.values())
