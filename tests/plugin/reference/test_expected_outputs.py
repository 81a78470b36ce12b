"""What outputs are measured by: runs that are off by what rounding may change, and by nothing that is measured."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto, numpy_helper

from sartor.onnx_model.graphs.held_data import HELD_BYTES, holding
from sartor.onnx_model.preparing.prepare import prepare
from sartor.onnx_model.rewrites.arithmetic.fourier import ROOTS_OF_UNITY
from sartor.reference import disturbed_model, expected_outputs
from sartor.reference.expected_outputs import Disturbed, Expectation
from sartor.reference.trusted.reference_model import ReferenceModel
from sartor.runtime.output_error import relative_error
from tests import tiny_models
from tests.plugin.onnx_model.builders import FLOAT, Array, ints, model, node, weights

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
