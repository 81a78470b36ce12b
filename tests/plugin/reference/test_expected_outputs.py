"""What outputs are measured by: kept ones of the same run, and more exact ones where digits lack."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, NodeProto, numpy_helper

from sartor.errors import UsageError
from sartor.onnx_model.graphs.held_data import HELD_BYTES, holding
from sartor.onnx_model.preparing.prepare import prepare
from sartor.onnx_model.rewrites.arithmetic.fourier import ROOTS_OF_UNITY
from sartor.reference import disturbed_model, expected_outputs
from sartor.reference.disturbed_model import disturb
from sartor.reference.expected_outputs import Disturbed, Expectation
from sartor.reference.kept_outputs import keep_outputs, kept_outputs
from sartor.reference.reference_job import ReferenceOutputs, ReferenceRun, reference_outputs
from sartor.reference.sigmoid_outputs import refined, sigmoid_outputs
from sartor.reference.trusted.reference_model import ReferenceModel
from sartor.runtime.driver.bound_input import BoundInput
from sartor.runtime.driver.signature import TensorSpec
from sartor.runtime.output_error import output_error, relative_error
from sartor.tuning.kept.values import KeptValues
from tests import tiny_models
from tests.plugin.onnx_model.builders import FLOAT, FLOAT16, Array, ints, model, node, run, weights

UNIT = float(np.finfo(np.float32).eps)


def wrong(right: ModelProto) -> ModelProto:
    """The model with its filters turned round, as a rewrite with a fault may leave it."""
    found = ModelProto()
    found.CopyFrom(right)
    for tensor in found.graph.initializer:
        tensor.CopyFrom(numpy_helper.from_array(-numpy_helper.to_array(tensor), tensor.name))
    return found


def test_a_prepared_model_that_is_wrong_is_no_noise(tmp_path: Path) -> None:
    built = tiny_models.residual()
    onnx.save(built, tmp_path / "net.onnx")
    feeds = {"x": np.random.default_rng(1).normal(size=(1, 16, 6, 6)).astype(np.float32)}
    prepared = wrong(built)
    outputs = ReferenceModel(prepared.SerializeToString())(feeds)
    for narrow in (False, True):
        expected = Expectation([tmp_path / "net.onnx"], prepared.SerializeToString(), narrow=narrow)(feeds)
        assert relative_error(outputs, expected.outputs, scales=expected.scales) > 0.5


def test_what_the_file_leaves_open_is_sorted_by_the_reference_itself() -> None:
    nodes = [node("TopK", ["x", "k"], ["y", "at"], sorted=0), node("Add", ["y", "w"], ["z"])]
    built = model(nodes, [("x", (50,), FLOAT)], ["y", "z"], {"k": ints(20), "w": weights(20)})
    x = weights(50)
    prepared = wrong_sum(prepare(built, simplifier=lambda _: ()).model)
    found = Expectation([built.SerializeToString(), prepared.SerializeToString()], prepared, narrow=False)({"x": x})
    np.testing.assert_array_equal(found.outputs[0], np.sort(x)[:-21:-1])
    np.testing.assert_array_equal(found.outputs[1], np.sort(x)[:-21:-1] + weights(20))


def wrong_sum(right: ModelProto) -> ModelProto:
    """The model with differences in place of sums."""
    found = ModelProto()
    found.CopyFrom(right)
    for each in found.graph.node:
        each.op_type = "Sub" if each.op_type == "Add" else each.op_type
    return found


def test_every_run_is_off_by_one_unit(monkeypatch: pytest.MonkeyPatch) -> None:
    built = model([node("MatMul", ["x", "w"], ["y"])], [("x", (1, 64), FLOAT)], ["y"], {"w": weights(64, 64)})
    before, loaded = built.SerializeToString(), list[bytes]()
    monkeypatch.setattr("sartor.reference.expected_outputs.ReferenceModel", lambda data, **_: loaded.append(data))
    Disturbed(built, narrow=False)
    assert built.SerializeToString() == before
    right = _weight(before)
    changes = [_weight(each).astype(np.float64) / right - 1 for each in loaded]
    assert len(changes) > 1
    for change in changes:
        # What is rounded to the nearest adds half a unit.
        assert 0.9 * UNIT < np.abs(change).max() <= 1.5 * UNIT
    assert not np.array_equal(changes[0], changes[1])


def _weight(data: bytes) -> Array:
    (tensor,) = ModelProto.FromString(data).graph.initializer
    return numpy_helper.to_array(tensor)


def test_zeros_of_a_fourier_transform_are_rounded_too() -> None:
    built = model([node("DFT", ["x"], ["y"], axis=1, onesided=1)], [("x", (1, 64, 1), FLOAT)], ["y"], opset=17)
    feeds = {"x": np.random.default_rng(1).normal(size=(1, 64, 1)).astype(np.float32)}
    prepared = prepare(built).model
    assert any(ROOTS_OF_UNITY in initializer.name for initializer in prepared.graph.initializer)
    outputs = ReferenceModel(prepared.SerializeToString())(feeds)
    expected = Expectation([built.SerializeToString()], prepared, narrow=False)(feeds)
    assert relative_error(outputs, expected.outputs, scales=expected.scales) < 1e-4
    shifted = [output.copy() for output in outputs]
    shifted[0][0, 0, 1] += 1e-2 * np.abs(shifted[0]).max()
    assert relative_error(shifted, expected.outputs, scales=expected.scales) > 1e-3


@pytest.mark.parametrize("is_held", [False, True])
def test_a_disturbed_model_is_what_protobuf_would_write(monkeypatch: pytest.MonkeyPatch, *, is_held: bool) -> None:
    """Its large weights are not copied into it, whoever else holds some."""
    large = np.random.default_rng(0).normal(size=(160, 160)).astype(np.float32)
    nodes = [node("MatMul", ["x", "w"], ["p"]), node("Gemm", ["p", "v"], ["y"])]
    constants = {"w": large, "v": np.ones((160, 3), np.float32)}
    built = model(nodes, [("x", (1, 160), FLOAT)], ["y"], constants)
    assert large.nbytes > HELD_BYTES
    before = built.SerializeToString()
    with holding() if is_held else nullcontext():
        found = [expected_outputs._disturbed(built, seed) for seed in range(2)]
    assert built.SerializeToString() == before
    monkeypatch.setattr(disturbed_model, "holding_tensor", numpy_helper.from_array)
    for seed, each in enumerate(found):
        copy = ModelProto.FromString(before)
        disturbed_model.disturb(copy, seed)
        assert each == copy.SerializeToString()
    assert found[0] != found[1]


KEY = "a" * 80
FEEDS = {"x": np.arange(6, dtype=np.float32).reshape(2, 3)}
RUN = ReferenceRun((Path("model.onnx"), Path("prepared.onnx")), Path("prepared.onnx"), FEEDS, 1, False)
OUTPUTS = ReferenceOutputs((np.ones(4, np.float32),), (np.full(4, 0.5),), ("it was refused",), "ONNX Runtime")


@pytest.fixture
def kept(tmp_path: Path) -> KeptValues:
    found = KeptValues(tmp_path / "imports")
    keep_outputs(found, KEY, RUN, OUTPUTS)
    return found


def test_outputs_of_the_same_run_come_back(kept: KeptValues) -> None:
    found = kept_outputs(kept, KEY, replace(RUN, feeds={"x": FEEDS["x"].copy()}))
    assert found is not None
    np.testing.assert_array_equal(found.arrays[0], OUTPUTS.arrays[0])
    np.testing.assert_array_equal(found.scales[0], OUTPUTS.scales[0])
    assert (found.refused, found.described) == (OUTPUTS.refused, OUTPUTS.described)


@pytest.mark.parametrize(
    "change",
    [
        {"feeds": {"x": FEEDS["x"] + 1}},
        {"feeds": {"x": FEEDS["x"].reshape(3, 2)}},
        {"feeds": {"x": FEEDS["x"].view(np.int32)}},
        {"feeds": {"y": FEEDS["x"]}},
        {"threads": 2},
        {"narrow": True},
        {"bound": (BoundInput(TensorSpec("n", "int64", ()), (3,)),)},
        {"models": (Path("prepared.onnx"),)},
    ],
)
def test_those_of_another_run_are_not_used(kept: KeptValues, change: dict[str, Any]) -> None:
    assert kept_outputs(kept, KEY, replace(RUN, **change)) is None


def test_those_of_another_import_are_not_used_nor_those_of_one_that_is_forgotten(kept: KeptValues) -> None:
    assert kept_outputs(kept, "b" * 80, RUN) is None
    kept.remove(KEY)
    assert kept_outputs(kept, KEY, RUN) is None


def test_what_was_said_about_outputs_is_said_again(
    kept: KeptValues, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As where ONNX Runtime does not run the copies by which rounding is known."""
    built = model([node("Relu", ["x"], ["y"])], [("x", (2, 3), FLOAT)], ["y"])
    path = tmp_path / "model.onnx"
    path.write_bytes(built.SerializeToString())

    def outputs() -> ReferenceOutputs:
        found = reference_outputs([path], path, FEEDS, 1, narrow=False)
        assert isinstance(found, ReferenceOutputs)
        return found

    plain = outputs()
    keep_outputs(kept, "c" * 80, RUN, plain)
    assert kept_outputs(kept, "c" * 80, RUN) is not None

    def fails(*_: object, **__: object) -> None:
        raise UsageError("it does not run")

    monkeypatch.setattr(expected_outputs, "disturbed_feeds", fails)
    doubtful = outputs()
    assert (plain.has_warned, doubtful.has_warned) == (False, True)
    keep_outputs(kept, "d" * 80, RUN, doubtful)
    assert kept_outputs(kept, "d" * 80, RUN) is None


def test_outputs_that_take_much_room_are_not_kept(kept: KeptValues) -> None:
    large = np.broadcast_to(np.float32(0), (1 << 25,))
    keep_outputs(kept, "c" * 80, RUN, replace(OUTPUTS, arrays=(large,)))
    assert not kept.may_have("c")


SHAPE = [1, 4]
SIGMOID = node("Sigmoid", ["x"], ["s"])
MOVED = [
    node("Concat", ["s", "s2"], ["c"], axis=1),
    node("Transpose", ["c"], ["t"]),
    node("Unsqueeze", ["t", "zero"], ["u"]),
    node("Slice", ["u", "zero", "one"], ["y"]),
]


@pytest.mark.parametrize(
    ("nodes", "found"),
    [
        ([node("Sigmoid", ["x"], ["y"])], True),
        ([SIGMOID, node("Sigmoid", ["x"], ["s2"], name="2"), *MOVED], True),
        ([SIGMOID, node("Relu", ["x"], ["s2"]), *MOVED], True),
        ([SIGMOID, node("Mul", ["s", "s"], ["y"])], False),
        ([node("Reshape", ["x", "shape"], ["y"])], False),
    ],
)
def test_which_outputs_hold_values_of_sigmoid(nodes: list[NodeProto], found: bool) -> None:
    constants = {"zero": np.array([0]), "one": np.array([1]), "shape": np.array([4])}
    assert sigmoid_outputs(model(nodes, [("x", SHAPE, FLOAT)], ["y"], constants)) == (found,)


def test_outputs_are_judged_one_by_one() -> None:
    half = [("x", SHAPE, FLOAT16)]
    assert sigmoid_outputs(model([node("Sigmoid", ["x"], ["y"])], half, [("y", SHAPE, FLOAT16)])) == (False,)
    built = model([SIGMOID, node("Neg", ["s"], ["y"])], [("x", SHAPE, FLOAT)], ["y", "s"])
    assert sigmoid_outputs(built) == (False, True)


def test_what_onnx_runtime_is_off_by_is_repaired() -> None:
    x = np.linspace(-30, -2, 20001, dtype=np.float32)[None]
    built = model([node("Sigmoid", ["x"], ["y"])], [("x", x.shape, FLOAT)], ["y"])
    reference, right = run(built, {"x": x})["y"], 1 / (1 + np.exp(-x.astype(np.float64)))
    small = x < -17
    assert output_error(right[small], reference[small]) > 1e-3
    disturb(built, 0)
    better = refined(reference, run(built, {"x": x})["y"])
    assert np.max(np.abs(better / right - 1)) < 1e-4
    np.testing.assert_array_equal(better[x > -5], reference[x > -5])


def test_what_is_further_off_is_not_repaired() -> None:
    reference = np.array([1e-6, 2e-6, 0.5], np.float32)
    np.testing.assert_array_equal(refined(reference, reference + np.float32(1e-6)), reference)
    np.testing.assert_array_equal(refined(reference, reference[:2]), reference)
