"""Pairs with a scale for each channel, as NNCF writes them before depthwise convolutions."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper
from onnx.numpy_helper import to_array

from sartor.frontend.imported_model import StoredIntegers
from sartor.frontend.layer_tensors import layer_tensors
from sartor.onnx_model.graphs.prepared import prepared_model
from sartor.onnx_model.quantisation.quantised_values import take_out_quantisation
from sartor.reference.random_inputs import sample_inputs
from sartor.tuning.calibration.quantised_range import QuantisedRange
from tests.importing import imported_model
from tests.plugin.onnx_model.builders import FLOAT, model, node, run, weights
from tests.plugin.onnx_model.conftest import Prepare
from tests.plugin.quantised_models import Qdq

_CHANNELS = 6
_NEAR = 2.0**-12


def _network(
    before: tuple[str, ...], zero: Any = 0, kind: str = "uint8", each: int = 1, steps: Any = None
) -> ModelProto:
    """A convolution, elementwise operators, a pair by channel, a depthwise convolution and a pair."""
    q = Qdq(kind)
    x = q.pair("x", -2.0, 2.0)
    q.constants |= {"b1": weights(_CHANNELS, seed=3, scale=0.2), "low": np.float32(0), "high": np.float32(6)}
    value = q.op("Conv", [x, q.weight("w1", weights(_CHANNELS, 4, 1, 1, scale=0.6)), "b1"], "expand")
    for operator in before:
        bounds = ["low", "high"] if operator == "Clip" else []
        value = q.op(operator, [value, *bounds], f"{operator}_{value}")
    if steps is None:
        steps = np.float32(6 / 255) * np.linspace(0.2, 1, _CHANNELS, dtype=np.float32)
    zeros = np.broadcast_to(np.asarray(zero, kind), _CHANNELS).copy()
    q.constants |= {"steps": steps, "zeros": zeros, "b2": weights(_CHANNELS * each, seed=4, scale=0.2)}
    q.op("QuantizeLinear", [value, "steps", "zeros"], "codes", axis=1)
    q.op("DequantizeLinear", ["codes", "steps", "zeros"], "channels", axis=1)
    filters = q.weight("w2", weights(_CHANNELS * each, 1, 3, 3, seed=1, scale=0.4))
    q.op("Conv", ["channels", filters, "b2"], "depthwise", pads=[1] * 4, group=_CHANNELS)
    q.pair("depthwise", -4.0, 4.0, output="y")
    return model(q.nodes, [("x", (1, 4, 7, 5), FLOAT)], ["y"], q.constants)


def _divided(ranges: dict[str, QuantisedRange]) -> QuantisedRange:
    """The range of what depthwise filters read."""
    return ranges["channels/divided"]


def _assert_rounds_alike(built: ModelProto, prepared: ModelProto) -> None:
    """Outputs are equal but for numbers next to a tie, and those are one step apart."""
    step = np.float32(8 / 255)
    for seed in range(8):
        feeds = sample_inputs(built, seed)
        right, found = run(built, feeds)["y"], run(prepared, feeds)["y"]
        steps = np.abs(right - found) / step
        assert steps.max() < 1 + _NEAR
        assert np.count_nonzero(steps > _NEAR) <= 1


_TWO_PAIRS_MORE = {"Div": 3, "Round": 3, "Clip": 3, "Mul": 3, "Conv": 2}
_WIDE = np.float32(9 / 255) * np.linspace(0.2, 1, _CHANNELS, dtype=np.float32)
_DIVIDED = _TWO_PAIRS_MORE | {"Div": 4}
CASES = {
    "no activation": ((), {"kind": "int8"}, _TWO_PAIRS_MORE),
    "relu": (("Relu",), {}, _TWO_PAIRS_MORE),
    "relu6": (("Clip",), {}, _TWO_PAIRS_MORE),
    "relu above the least": (("Relu",), {"zero": 17}, _TWO_PAIRS_MORE | {"Relu": 1}),
    "two filters a channel": (("Relu",), {"each": 2}, _TWO_PAIRS_MORE),
    "a clip within the range": (("Clip",), {"steps": _WIDE}, _DIVIDED | {"Clip": 4}),
    "an activation": (("Tanh",), {"kind": "int8"}, _DIVIDED | {"Tanh": 1}),
}


@pytest.mark.parametrize(("before", "settings", "operators"), CASES.values(), ids=CASES)
def test_a_scale_for_each_channel_moves_into_filters(
    before: tuple[str, ...], settings: dict[str, Any], operators: dict[str, int], prepare_quickly: Prepare
) -> None:
    built = _network(before, **settings)
    prepared = prepare_quickly(built).model
    ranges = take_out_quantisation(prepared)
    assert Counter(node.op_type for node in prepared.graph.node) == operators
    assert _divided(ranges).scale == 2.0 ** round(np.log2(6 / 255))
    _assert_rounds_alike(built, prepared)


def test_the_integers_of_a_pair_stay_the_same(prepare_quickly: Prepare) -> None:
    built = _network(("Tanh",), kind="int8")
    prepared = prepare_quickly(built).model
    ranges = take_out_quantisation(prepared)
    steps = next(to_array(each) for each in built.graph.initializer if each.name == "steps")
    for each, name in ((built, "channels"), (prepared, "channels/divided")):
        each.graph.output.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, None))
    feeds = sample_inputs(built, 0)
    right, found = run(built, feeds)["channels"], run(prepared, feeds)["channels/divided"]
    assert np.abs(right).max() > 0
    np.testing.assert_array_equal(found / np.float32(_divided(ranges).scale) * steps.reshape(-1, 1, 1), right)


def test_values_are_named_as_the_integers_of_the_file_and_divided_ones_are_not(tmp_path: Path) -> None:
    path = tmp_path / "network.onnx"
    built = _network(("Relu",), zero=17)
    onnx.save(built, path)
    imported = imported_model(path)
    step = 2.0 ** round(np.log2(6 / 255))
    assert imported.integers["channels/divided"] == StoredIntegers("codes", step, 17)
    names = {
        name
        for each in layer_tensors(prepared_model(imported.prepared), imported.graph).values()
        for name in each.results
    }
    assert "channels/divided" in names
    assert names.isdisjoint({"expand", "Relu_expand", "channels"})


@pytest.mark.parametrize("reason", ["zero points differ", "another reader", "an output", "filters that are computed"])
def test_other_pairs_by_channel_stay(reason: str, prepare_quickly: Prepare) -> None:
    built = _network(("Relu",), zero=[0, 1, 0, 0, 0, 2] if reason.startswith("zero") else 0)
    if reason == "another reader":
        built.graph.node.append(node("Exp", ["channels"], ["other"], name="other"))
        built.graph.output.append(helper.make_tensor_value_info("other", TensorProto.FLOAT, None))
    elif reason == "an output":
        built.graph.output.append(helper.make_tensor_value_info("channels", TensorProto.FLOAT, None))
    elif reason == "filters that are computed":
        built.graph.input.append(helper.make_tensor_value_info("b2", TensorProto.FLOAT, [_CHANNELS]))
        del built.graph.initializer[[each.name for each in built.graph.initializer].index("b2")]
    prepared = prepare_quickly(built).model
    assert not any(name.startswith("channels") for name in take_out_quantisation(prepared))
    assert Counter(each.op_type for each in prepared.graph.node)["QuantizeLinear"] == 1
    feeds = sample_inputs(built, 0)
    np.testing.assert_allclose(run(prepared, feeds)["y"], run(built, feeds)["y"], atol=1e-5)
