"""Pads that are negative, and pads before others."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper

from sartor.errors import UnsupportedModelError
from tests.plugin.onnx_model.builders import FLOAT, Array, ints, model, node, run, weights
from tests.plugin.onnx_model.conftest import Prepare
from tests.plugin.onnx_model.together import computed_together


@pytest.mark.parametrize("pads", [(-1, 2), (1, 2)])
def test_axes_of_32_bits(pads: tuple[int, int], prepare_quickly: Prepare) -> None:
    constants = {"p": ints(*pads), "v": np.float32(0.5), "a": np.array([-1], np.int32)}
    nodes = [node("Pad", ["x", "p", "v", "a"], ["y"])]
    built = model(nodes, [("x", (2, 3), FLOAT)], ["y"], constants, opset=18)
    x = weights(2, 3)
    low, high = pads
    expected = np.pad(x[:, max(-low, 0) :], ((0, 0), (max(low, 0), high)), constant_values=0.5)
    # ONNX Runtime does not read such axes.
    np.testing.assert_array_equal(run(prepare_quickly(built).model, {"x": x})["y"], expected)


@pytest.mark.parametrize("pads", [(0, -2, 0, -2), (0, -4, 0, 5)])
def test_cropping_more_than_there_is(pads: tuple[int, ...], prepare_quickly: Prepare) -> None:
    built = model([node("Pad", ["x", "p"], ["y"])], [("x", (2, 3), FLOAT)], ["y"], {"p": ints(*pads)}, opset=18)
    with pytest.raises(UnsupportedModelError, match=r"node 'pad' \(Pad\)"):
        prepare_quickly(built)


_SECOND: dict[str, tuple[NodeProto, dict[str, Array]]] = {
    "pad": (node("Pad", ["padded", "q"], ["y"], name="second"), {"q": ints(0, 0, 3, 0, 1, 0, 0, 0)}),
    "conv": (node("Conv", ["padded", "w"], ["y"], pads=[1, 0, 1, 2]), {"w": weights(4, 3, 2, 2)}),
    "maxpool": (node("MaxPool", ["padded"], ["y"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]), {}),
    "mirror": (node("Pad", ["padded", "q"], ["y"], name="second", mode="reflect"), {"q": ints(0, 0, 3, 0, 0, 0, 1, 0)}),
    "averagepool": (node("AveragePool", ["padded"], ["y"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]), {}),
}
_PADS = ints(0, 0, 1, 0, 0, 0, 2, 3)


def test_a_pad_before_other_padding_is_a_concatenation(prepare_quickly: Prepare) -> None:
    x, cases, wanted = weights(2, 3, 5, 7), {}, {}
    for second, axes in itertools.product([each for each in _SECOND if each != "mirror"], [None, ints(3, -2)]):
        built, name = _padded_twice(second, axes), f"{second}, axes {axes}"
        prepared, expected = prepare_quickly(built).model, run(built, {"x": x})["y"]
        assert [item.op_type for item in prepared.graph.node][:3] == ["Relu", "Concat", "Concat"], name
        np.testing.assert_allclose(run(prepared, {"x": x})["y"], expected, rtol=1e-6, err_msg=name)
        built.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", FLOAT, expected.shape))
        cases[name], wanted[name] = (built, {"x": x}), expected
    for name, (found,) in computed_together(cases).items():
        np.testing.assert_allclose(found, wanted[name], rtol=1e-4, atol=1e-5, err_msg=name)


def _padded_twice(second: str, axes: Array | None) -> ModelProto:
    last, constants = _SECOND[second]
    given = {"p": _PADS} if axes is None else {"p": ints(0, 1, 3, 2), "a": axes}
    first = node("Pad", ["positive", "p", "v", *(["a"] if axes is not None else [])], ["padded"])
    nodes = [node("Relu", ["x"], ["positive"]), first, last]
    constants = {**constants, **given, "v": np.array(0.5, np.float32)}
    return model(nodes, [("x", (2, 3, 5, 7), FLOAT)], ["y"], constants, opset=18)


@pytest.mark.parametrize(
    ("before", "value", "mode", "last"),
    [
        ("Identity", 0.5, "constant", "conv"),
        ("Relu", 0, "constant", "conv"),
        ("Relu", 0, "constant", "pad"),
        ("Relu", 0.5, "edge", "conv"),
        ("Relu", -np.inf, "constant", "maxpool"),
        ("Relu", 0.5, "constant", "mirror"),
    ],
)
def test_other_pads_stay(before: str, value: float, mode: str, last: str, prepare_quickly: Prepare) -> None:
    after, constants = _SECOND[last]
    first = node("Pad", ["before", "p", "v"] if mode == "constant" else ["before", "p"], ["padded"], mode=mode)
    constants = {**constants, "p": _PADS, **({"v": np.array(value, np.float32)} if mode == "constant" else {})}
    built = model([node(before, ["x"], ["before"]), first, after], [("x", (2, 3, 5, 7), FLOAT)], ["y"], constants)
    prepared, x = prepare_quickly(built).model, weights(2, 3, 5, 7)
    assert not any(item.op_type == "Concat" and item.name.startswith("pad") for item in prepared.graph.node)
    np.testing.assert_allclose(run(prepared, {"x": x})["y"], run(built, {"x": x})["y"], rtol=1e-6)


def test_integers_of_64_bits_are_padded_exactly(prepare_quickly: Prepare) -> None:
    largest = 2**63 - 1
    constants = {"p": ints(1, 0), "q": ints(0, 2), "v": np.int64(largest), "w": np.int64(0)}
    nodes = [node("Neg", ["x"], ["n"]), node("Pad", ["n", "p", "v"], ["m"]), node("Pad", ["m", "q", "w"], ["y"])]
    built = model(nodes, [("x", (2,), TensorProto.INT64)], [("y", (5,), TensorProto.INT64)], constants, opset=18)
    prepared = prepare_quickly(built).model
    assert "Concat" in [item.op_type for item in prepared.graph.node]
    assert run(prepared, {"x": np.array([3, -(2**60)])})["y"].tolist() == [largest, -3, 2**60, 0, 0]


def test_what_is_added_is_no_large_constant(prepare_quickly: Prepare) -> None:
    pool = node("MaxPool", ["padded"], ["y"], kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    nodes = [node("Relu", ["x"], ["r"]), node("Pad", ["r", "p"], ["padded"]), pool]
    built = model(nodes, [("x", (1, 64, 112, 112), FLOAT)], ["y"], {"p": ints(0, 0, 3, 3, 0, 0, 3, 3)}, opset=18)
    prepared = prepare_quickly(built).model
    assert "Concat" in [item.op_type for item in prepared.graph.node]
    assert prepared.ByteSize() < 100_000
