"""What is read before weights are: random operators as inputs, and nodes of a serialised model."""

from __future__ import annotations

import mmap
from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

from sartor.errors import UnsupportedModelError
from sartor.onnx_model.reading.outside_weights import outside_weights
from sartor.reference.random_inputs import Style, sample_inputs
from sartor.reference.trusted import reference_model
from sartor.reference.trusted.reference_model import ReferenceModel
from sartor.runtime.driver.noise import NORMAL, UNIFORM, Noise
from tests.plugin.onnx_model.builders import FLOAT, Array, model, node, run
from tests.plugin.onnx_model.conftest import Load, Prepare

DOUBLE, FLOAT16, BOOL, INT32, INT64 = (
    *(TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BOOL),
    *(TensorProto.INT32, TensorProto.INT64),
)


@pytest.mark.parametrize(
    ("operator", "options", "element", "noise"),
    [
        ("RandomNormal", {"shape": [2, 3], "seed": 7.0}, FLOAT, Noise("n/noise", NORMAL, 0, 1, 7.0)),
        ("RandomNormal", {"shape": [2, 3], "dtype": FLOAT16}, FLOAT16, Noise("n/noise", NORMAL, 0, 1)),
        ("RandomUniform", {"shape": [2, 3], "low": -2.0, "high": 4.0}, FLOAT, Noise("n/noise", UNIFORM, -2, 4)),
        ("RandomNormalLike", {"mean": 3.0, "scale": 0.5}, FLOAT, Noise("n/noise", NORMAL, 3, 0.5)),
        ("RandomUniformLike", {"dtype": DOUBLE}, DOUBLE, Noise("n/noise", UNIFORM, 0, 1)),
    ],
)
def test_what_is_drawn_is_an_input(
    operator: str,
    options: dict[str, object],
    element: int,
    noise: Noise,
    save_and_load: Load,
    prepare_quickly: Prepare,
    tmp_path: Path,
) -> None:
    """Given the same numbers, the user's file and the prepared model compute the same."""
    read = ["x"] if operator.endswith("Like") else []
    nodes = [node(operator, read, ["d"], name="n", **options), node("Abs", ["d"], ["y"]), node("Neg", ["x"], ["z"])]
    built = model(nodes, [("x", ("batch", 3), FLOAT)], [("y", None, element), "z"])
    prepared = prepare_quickly(save_and_load(built), {"x": (2, 3)})
    assert prepared.noise == (noise,)
    assert [(each.name, each.shape) for each in prepared.inputs] == [("x", (2, 3)), ("n/noise", (2, 3))]
    feeds = sample_inputs(prepared.model, 0, Style(limits=(0.0, 255.0)))
    found = run(prepared.model, feeds)
    right = ReferenceModel(tmp_path / "model.onnx")(feeds)
    np.testing.assert_array_equal(found["y"], right[0])
    drawn = feeds["n/noise"].astype(helper.tensor_dtype_to_np_dtype(element))
    np.testing.assert_array_equal(found["y"], np.abs(drawn))


def test_the_distribution_is_that_of_the_operator() -> None:
    random, count = np.random.default_rng(0), 100_000
    drawn = Noise("", NORMAL, 3.0, 0.5).draw(random, (count,))
    assert abs(drawn.mean() - 3) < 0.01
    assert abs(drawn.std() - 0.5) < 0.01
    drawn = Noise("", UNIFORM, -2.0, 4.0).draw(random, (count,))
    assert -2 <= drawn.min() < -1.99
    assert 3.99 < drawn.max() < 4
    assert Noise("", UNIFORM, 1.0, 1.0).draw(random, ()).shape == ()


def _drawn(operator: str, x: Array, element: int, **options: object) -> ModelProto:
    return model(
        [node(operator, ["x"], ["y"], name="n", **options)],
        [("x", x.shape, helper.np_dtype_to_tensor_dtype(x.dtype))],
        [("y", None, element)],
    )


@pytest.mark.parametrize("kind", [np.float32, np.float64, np.float16])
def test_bernoulli_is_one_as_often_as_its_probability_says(
    kind: type[np.generic], save_and_load: Load, prepare_quickly: Prepare
) -> None:
    chances = np.tile(np.array([0.0, 0.25, 1.0]), (20_000, 1)).astype(kind)
    prepared = prepare_quickly(save_and_load(_drawn("Bernoulli", chances, BOOL, dtype=BOOL)))
    feeds = {**sample_inputs(prepared.model, 0), "x": chances}
    mean = run(prepared.model, feeds)["y"].mean(0)
    np.testing.assert_allclose(mean, [0, 0.25, 1], atol=0.01)
    assert (mean[0], mean[2]) == (0, 1)


@pytest.mark.parametrize(("element", "opset"), [(INT32, 11), (INT64, 17)])
def test_multinomial_draws_classes_by_their_chances(
    element: int, opset: int, save_and_load: Load, prepare_quickly: Prepare
) -> None:
    chances = np.array([[0.1, 0.2, 0.7], [1.0, 0.0, 0.0]])
    logits = np.log(chances + 1e-30).astype(np.float32) + np.array([[5], [-3]], np.float32)
    built = _drawn("Multinomial", logits, element, dtype=element, sample_size=20_000)
    built.opset_import[0].version = opset
    prepared = prepare_quickly(save_and_load(built))
    drawn = run(prepared.model, {**sample_inputs(prepared.model, 0), "x": logits})["y"]
    assert drawn.dtype == helper.tensor_dtype_to_np_dtype(element)
    for row, chance in zip(drawn, chances, strict=True):
        np.testing.assert_allclose(np.bincount(row, minlength=3) / row.size, chance, atol=0.015)


def test_noise_of_nodes_in_branches_and_functions_is_an_input_of_the_model(
    save_and_load: Load, prepare_quickly: Prepare
) -> None:
    inner = helper.make_node("RandomNormalLike", ["a"], ["b"], name="inner")
    function = helper.make_function("own", "Noisy", ["a"], ["b"], [inner], [helper.make_opsetid("", 17)])
    branches = [
        helper.make_graph([body], "body", [], [helper.make_tensor_value_info("o", FLOAT, [3])])
        for body in (node("RandomUniformLike", ["x"], ["o"], name="drawn"), node("Neg", ["x"], ["o"]))
    ]
    chosen = node("If", ["c"], ["z"], then_branch=branches[0], else_branch=branches[1])
    built = model(
        [helper.make_node("Noisy", ["x"], ["y"], name="call", domain="own"), chosen],
        [("x", (3,), FLOAT), ("c", (), BOOL)],
        ["y", "z"],
    )
    built.functions.append(function)
    built.opset_import.append(helper.make_opsetid("own", 1))
    prepared = prepare_quickly(save_and_load(built), bindings={"c": (True,)})
    assert [each.shape for each in prepared.inputs] == [(3,)] * 3
    assert {each.kind for each in prepared.noise} == {NORMAL, UNIFORM}


def test_numbers_that_a_loop_draws_are_refused_with_a_way_out(save_and_load: Load) -> None:
    flags = [helper.make_tensor_value_info(name, kind, []) for name, kind in (("i", INT64), ("go", BOOL))]
    states = [helper.make_tensor_value_info(name, FLOAT, [3]) for name in ("s", "t")]
    body = helper.make_graph(
        [node("RandomNormalLike", ["s"], ["n"], name="inner"), node("Add", ["s", "n"], ["t"])],
        "body",
        [*flags, states[0]],
        [helper.make_tensor_value_info("go", BOOL, []), states[1]],
    )
    built = model([node("Loop", ["steps", "", "x"], ["y"], body=body)], [("x", (3,), FLOAT)], ["y"], {"steps": 3})
    with pytest.raises(UnsupportedModelError, match=r"'inner' \(RandomNormalLike\) draws .* before it"):
        save_and_load(built)


# As a node's operator is written: the field, the length and the name.
NAMED = b"\x22\x0dRandomUniform"


def outside_weights_model(operator: str, weight: bytes) -> ModelProto:
    """A node of an operator inside a branch, and a weight of some bytes."""
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])
    inner = helper.make_node(operator, [], ["y"], shape=[2])
    branch = helper.make_graph([inner], "branch", [], [result])
    chosen = helper.make_node("If", ["flag"], ["y"], then_branch=branch, else_branch=branch)
    flag = helper.make_tensor_value_info("flag", TensorProto.BOOL, [])
    weights = [numpy_helper.from_array(np.frombuffer(weight, np.uint8), "w")]
    return helper.make_model(helper.make_graph([chosen], "graph", [flag], [result], weights))


@pytest.mark.parametrize("size", [1, 127, 128, 70_000])
def test_weights_are_left_out_and_all_nodes_stay(size: int) -> None:
    whole = outside_weights_model("RandomUniform", b"\x07" * size)
    whole.functions.add(name="f", domain="d").node.add(op_type="Add")
    rest = ModelProto.FromString(outside_weights(whole.SerializeToString()))
    assert len(whole.graph.initializer) == 1
    del whole.graph.initializer[:]
    assert rest == whole


def test_a_name_among_weights_is_none(tmp_path: Path) -> None:
    content, path = outside_weights_model("RandomNormal", NAMED).SerializeToString(), tmp_path / "model.onnx"
    path.write_bytes(content)
    assert NAMED in content
    assert NAMED not in outside_weights(content)
    for each in (content, path):
        assert not reference_model._may_have(each, ["RandomUniform"])
        assert reference_model._may_have(each, ["RandomUniform", "RandomNormal"])
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        assert outside_weights(mapped) == outside_weights(content)


def test_what_is_no_model_is_searched_as_it_is(tmp_path: Path) -> None:
    content = outside_weights_model("RandomUniform", b"").SerializeToString()
    for broken in (content[:-3], b"\x3a\xff" + content, b"\xff" * 20, content + b"\x0b"):
        assert outside_weights(broken) == broken
    assert outside_weights(b"") == b""
    assert not reference_model._may_have(tmp_path / "none.onnx", ["RandomUniform"])
    (tmp_path / "empty.onnx").write_bytes(b"")
    assert not reference_model._may_have(tmp_path / "empty.onnx", ["RandomUniform"])
