"""Lengths that models compute from data: which they are, and the model without them."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper

from sartor.onnx_model.dynamic.computed_length import computed_length, data_sized
from sartor.onnx_model.dynamic.cut_length import LENGTH, ROUNDED, CutLength, cut_length, keep_length
from sartor.onnx_model.preparing.prepare import prepare
from sartor.onnx_model.reading.noise_inputs import feed_noise
from sartor.runtime.driver.signature import Array
from sartor.runtime.reference import OnnxRuntimeReference
from tests.open_models import encoder, feed_forward
from tests.speaking_models import SOUNDS, WIDTH, Noise, speaking


def ran(model: ModelProto, feeds: dict[str, Array]) -> dict[str, Array]:
    reference = OnnxRuntimeReference(model.SerializeToString(), threads=1)
    return dict(zip(reference.output_names, reference(feeds), strict=True))


def ids(count: int) -> Array:
    return np.random.default_rng(count).integers(0, SOUNDS, (1, count))


def noise(frames: int) -> Array:
    return np.random.default_rng(frames).standard_normal((1, WIDTH, frames)).astype(np.float32)


def copied(model: ModelProto) -> ModelProto:
    copy = ModelProto()
    copy.CopyFrom(model)
    return copy


def cut(model: ModelProto) -> CutLength:
    length = computed_length(model)
    assert length is not None
    return cut_length(model, length)


def test_the_length_is_the_integer_that_ranges_count_up_to() -> None:
    length = computed_length(speaking())
    assert length is not None
    assert (length.value, length.dtype, length.rank, length.rounded) == ("length", TensorProto.INT64, 0, ("exact",))


@pytest.mark.parametrize("model", [feed_forward(), encoder()])
def test_sizes_of_inputs_are_no_such_length(model: ModelProto) -> None:
    assert computed_length(model) is None
    assert not data_sized(model)


def test_what_callers_give_or_fix_is_no_such_length() -> None:
    nodes = [helper.make_node("Range", ["zero", "count", "one"], ["places"])]
    held = [onnx.numpy_helper.from_array(np.asarray(value), name) for name, value in (("zero", 0), ("one", 1))]
    inputs = [helper.make_tensor_value_info("count", TensorProto.INT64, [])]
    outputs = [helper.make_tensor_value_info("places", TensorProto.INT64, ["places"])]
    assert computed_length(helper.make_model(helper.make_graph(nodes, "given", inputs, outputs, held))) is None
    assert computed_length(speaking(), {"ids"}) is None
    assert computed_length(speaking(), {"noise"}) is not None


def test_a_length_that_is_doubled_again_and_again_is_followed_once() -> None:
    model = speaking()
    for node in model.graph.node:
        node.input[:] = ["doubled 60" if node.op_type == "Range" and name == "length" else name for name in node.input]
    chain = ["length", *(f"doubled {count}" for count in range(1, 61))]
    doublings = [helper.make_node("Add", [one, one], [other]) for one, other in pairwise(chain)]
    place = next(place for place, node in enumerate(model.graph.node) if "doubled 60" in node.input)
    before, behind = model.graph.node[:place], model.graph.node[place:]
    del model.graph.node[:]
    model.graph.node.extend([*before, *doublings, *behind])
    length = computed_length(model)
    assert length is not None
    assert length.value == "length"


def test_two_lengths_are_not_told_apart() -> None:
    model = speaking()
    nodes = [
        helper.make_node("ReduceMin", ["whole_totals"], ["other"], keepdims=0),
        helper.make_node("Range", ["zero", "other", "one"], ["further"]),
    ]
    model.graph.node.extend(nodes)
    model.graph.output.append(helper.make_tensor_value_info("further", TensorProto.INT64, ["further"]))
    assert computed_length(model) is None


@pytest.mark.parametrize("noise", [Noise.DRAWN, Noise.NONE])
def test_the_length_has_another_name_than_lengths_of_inputs(noise: Noise) -> None:
    model = speaking(noise)
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_param = "length"
    feed_noise(model)
    assert cut(model).symbol == "length_2"
    assert [value.type.tensor_type.shape.dim[-1].dim_param for value in model.graph.input] == ["length", "length_2"]


@pytest.mark.parametrize("count", [1, 7])
def test_a_model_without_its_length_gives_the_same_where_inputs_are_as_long(count: int) -> None:
    whole, part = speaking(), speaking()
    made = cut(part)
    assert made == CutLength("most_frames", (("noise", 2),), "", "node 'length_node' (ReduceMax)")
    onnx.checker.check_model(part)
    expected = ran(whole, {"ids": ids(count), "noise": noise(60)})["frames"]
    frames = expected.shape[1]
    given = ran(part, {"ids": ids(count), "noise": noise(60)[..., :frames]})
    np.testing.assert_array_equal(given["frames"], expected)
    assert given[LENGTH].tolist() == [frames]


def test_a_model_without_noise_gets_an_input_for_the_length_alone() -> None:
    whole, part = speaking(Noise.NONE), speaking(Noise.NONE)
    made = cut(part)
    assert (made.symbol, made.places, made.unread) == ("length", (), "length/size")
    expected = ran(whole, {"ids": ids(5)})["frames"]
    given = ran(part, {"ids": ids(5), "length/size": np.zeros(expected.shape[1], np.int8)})
    np.testing.assert_array_equal(given["frames"], expected)


def test_drawn_noise_becomes_an_input_of_which_as_much_is_read_as_the_length_says() -> None:
    whole = speaking(Noise.DRAWN)
    (drawn,) = feed_noise(whole)
    part = copied(whole)
    made = cut(part)
    assert made.places == ((drawn.name, 2),)
    dims = [dim.dim_param or dim.dim_value for dim in part.graph.input[-1].type.tensor_type.shape.dim]
    assert dims == [1, WIDTH, "length"]
    expected = ran(whole, {"ids": ids(5), drawn.name: noise(60)})["frames"]
    given = ran(part, {"ids": ids(5), drawn.name: noise(60)[..., : expected.shape[1]]})
    np.testing.assert_array_equal(given["frames"], expected)


def test_what_computes_the_length_is_left_alone_with_what_is_rounded() -> None:
    whole, model = speaking(), speaking()
    length = computed_length(model)
    assert length is not None
    keep_length(model, length)
    assert [value.name for value in model.graph.input] == ["ids"]
    assert "last" not in [tensor.name for tensor in model.graph.initializer]
    given = ran(model, {"ids": ids(6)})
    frames = ran(whole, {"ids": ids(6), "noise": noise(60)})["frames"].shape[1]
    assert given[LENGTH].item() == frames == np.ceil(given[f"{ROUNDED}:0"]).sum()


def test_noise_has_a_known_shape_where_the_length_follows_from_inputs_that_are_fixed() -> None:
    model = speaking(Noise.DRAWN)
    (drawn,) = feed_noise(model)
    frames = ran(copied(model), {"ids": ids(3), drawn.name: noise(60)})["frames"].shape[1]
    bindings = {"ids": tuple(map(int, ids(3).ravel()))}
    (given,) = prepare(model, {"ids": (1, 3)}, bindings=bindings).inputs
    assert (given.name, given.shape) == (drawn.name, (1, WIDTH, frames))
