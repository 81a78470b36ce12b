"""What a refusal advises works: its options, pasted into the command line until none is left, make the model static."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

from sartor.cli.options.common import read_bindings, read_shapes
from sartor.errors import SartorError, UnsupportedModelError, UsageError
from sartor.onnx_model.dynamic.suggested_shapes import suggested_shapes
from sartor.onnx_model.preparing.prepare import prepare
from tests.plugin.onnx_model.builders import FLOAT, INT64, Value, ints, model, node, weights
from tests.plugin.onnx_model.conftest import Prepare

Build = Callable[[], ModelProto]
_CONV = node("Conv", ["x", "w"], ["y"])
_IMAGE: list[Value] = [("x", ("N", "C", "H", "W"), FLOAT)]
_PAST: list[Value] = [("past", ("b", "past", 8), FLOAT), ("x", ("b", "s", 8), FLOAT)]
_JOIN = node("Concat", ["past", "x"], ["all"], axis=1)

SYMBOLIC: dict[str, tuple[Build, dict[str, tuple[int, ...]]]] = {
    "batch": (
        lambda: model([_CONV], [("x", ("N", 3, 16, 16), FLOAT)], ["y"], {"w": weights(4, 3, 3, 3)}),
        {"x": (1, 3, 16, 16)},
    ),
    "channels of weights": (
        lambda: model([_CONV], _IMAGE, ["y"], {"w": weights(4, 1, 3, 3)}),
        {"x": (1, 1, 224, 224)},
    ),
    "nameless": (
        lambda: model([_CONV], [("x", (None,) * 4, FLOAT)], ["y"], {"w": weights(4, 5, 3, 3)}),  # type: ignore[list-item]
        {"x": (1, 5, 224, 224)},
    ),
    "no shape": (
        lambda: model([_CONV], [("x", None, FLOAT)], ["y"], {"w": weights(4, 5, 3)}),
        {"x": (1, 5, 128)},
    ),
    "read by constant indices": (
        lambda: model(
            [node("Gather", ["x", "i"], ["y"], axis=1)], [("x", (1, "f"), FLOAT)], ["y"], {"i": ints(200, -3)}
        ),
        {"x": (1, 256)},
    ),
    "behind arithmetic": (
        lambda: model(
            [node("Div", ["x", "k"], ["d"]), node("MatMul", ["d", "w"], ["y"])],
            [("x", ("b", "f"), FLOAT)],
            ["y"],
            {"w": weights(7, 3), "k": np.float32(2)},
        ),
        {"x": (1, 7)},
    ),
    "image of one size": (
        lambda: model(
            [
                node("Conv", ["x", "w"], ["c"]),
                node("Flatten", ["c"], ["f"]),
                node("Gemm", ["f", "v"], ["y"]),
            ],
            [("x", ("N", 3, "H", "W"), FLOAT)],
            ["y"],
            {"w": weights(4, 3, 3, 3), "v": weights(3600, 5)},
        ),
        {"x": (1, 3, 32, 32)},
    ),
    "positions": (
        lambda: model(
            [node("Gather", ["e", "ids"], ["a"]), node("Add", ["a", "p"], ["y"])],
            [("ids", ("batch", "seq"), INT64)],
            ["y"],
            {"e": weights(20, 8), "p": weights(1, 50, 8)},
        ),
        {"ids": (1, 50)},
    ),
    "batch of a Reshape": (
        lambda: model([node("Reshape", ["x", "s"], ["y"])], [("x", ("N", 4, 4), FLOAT)], ["y"], {"s": ints(8, 16)}),
        {"x": (8, 4, 4)},
    ),
    "two symbols": (
        lambda: model([node("Add", ["a", "b"], ["y"])], [("a", ("n", 4), FLOAT), ("b", ("m", 4), FLOAT)], ["y"]),
        {"a": (1, 4), "b": (1, 4)},
    ),
    "shared symbols": (
        lambda: model([node("Add", ["a", "b"], ["y"])], [("a", ("n", "m"), FLOAT), ("b", ("n", "m"), FLOAT)], ["y"]),
        {"a": (1, 128)},
    ),
    "sum of symbols": (
        lambda: model(
            [_JOIN, node("Mul", ["all", "mask"], ["y"])], [*_PAST, ("mask", ("b", "past + s", 1), FLOAT)], ["y"]
        ),
        {"past": (1, 128, 8), "x": (1, 128, 8), "mask": (1, 256, 1)},
    ),
    "rows of a table": (
        lambda: _counted_positions(),
        {"past": (1, 4, 4), "x": (1, 4, 4)},
    ),
    "names for a shell": (
        lambda: model([node("Relu", ["it's $x"], ["y"])], [("it's $x", ("n", 4), FLOAT)], ["y"]),
        {"it's $x": (1, 4)},
    ),
    "repeats": (
        lambda: model(
            [node("Tile", ["x", "s"], ["y"])], [("x", ("n", 8), FLOAT), ("s", ("r",), INT64)], [("y", None, FLOAT)]
        ),
        {"x": (1, 8), "s": (2,)},
    ),
}

_X: Value = ("x", (2, 8), FLOAT)
DECIDED: dict[str, Build] = {
    "Reshape": lambda: model([node("Reshape", ["x", "s"], ["y"])], [_X, ("s", (3,), INT64)], ["y"]),
    "Range": lambda: model(
        [node("Range", ["a", "n", "d"], ["y"])], [("n", (), INT64)], [("y", None, INT64)], {"a": 0, "d": 1}
    ),
    "Resize": lambda: model([node("Resize", ["x", "", "", "s"], ["y"])], [_X, ("s", (2,), INT64)], ["y"]),
    "Split": lambda: model([node("Split", ["x", "s"], ["y", "z"], axis=1)], [_X, ("s", (2,), INT64)], ["y", "z"]),
    "Expand": lambda: model([node("Expand", ["x", "s"], ["y"])], [("x", (1, 8), FLOAT), ("s", (2,), INT64)], ["y"]),
    "If": lambda: _choice(),
}


def _counted_positions() -> ModelProto:
    """Positions of what follows a past, as rows of a table of 8."""
    nodes = [
        *(node("Shape", ["past"], ["before"], start=1, end=2), node("Shape", ["x"], ["new"], start=1, end=2)),
        *(node("Add", ["before", "new"], ["end"]), node("Squeeze", ["before"], ["first"])),
        *(node("Squeeze", ["end"], ["last"], name="last"), node("Range", ["first", "last", "one"], ["places"])),
        *(node("Gather", ["table", "places"], ["rows"]), node("Add", ["x", "rows"], ["y"], name="sum")),
    ]
    inputs: list[Value] = [("past", ("b", "p", 4), FLOAT), ("x", ("b", "s", 4), FLOAT)]
    return model(nodes, inputs, ["y"], {"table": weights(8, 4), "one": np.int64(1)}, opset=18)


def _choice() -> ModelProto:
    branches = [
        model([node("Relu", ["x"], ["t"])], [], ["t"]).graph,
        # Of results that differ in one axis the larger one is a bound.
        model([node("Transpose", ["x"], ["e"])], [], ["e"]).graph,
    ]
    choice = node("If", ["odd name"], ["y"], then_branch=branches[0], else_branch=branches[1])
    return model([choice], [_X, ("odd name", (), TensorProto.BOOL)], ["y"])


def _follow(built: ModelProto, message: str) -> None:
    """Prepare the model with the options of each refusal; ``message`` is the first one."""
    texts: dict[str, list[str]] = {"--shape": [], "--bind": []}
    for _ in range(3):
        words = shlex.split(re.sub(r"^.*?(?=--(shape|bind) )", "", message))
        options = [(words[i], words[i + 1].rstrip(",")) for i, word in enumerate(words) if word in texts]
        assert options, message
        for option, text in options:
            texts[option].append(text)
        try:
            prepare(built, read_shapes(texts["--shape"]), bindings=read_bindings(texts["--bind"]))
        except SartorError as error:
            message = str(error)
        else:
            return
    pytest.fail(message)


@pytest.mark.parametrize("name", sorted(SYMBOLIC))
def test_advised_shapes_work(name: str, prepare_quickly: Prepare) -> None:
    build, expected = SYMBOLIC[name]
    built = build()
    assert suggested_shapes(built) == expected
    with pytest.raises(UsageError, match="bind it with --shape") as refused:
        prepare(built)
    _follow(built, str(refused.value))


@pytest.mark.parametrize("name", sorted(DECIDED))
def test_advised_values_work(name: str, prepare_quickly: Prepare) -> None:
    built = DECIDED[name]()
    with pytest.raises(UnsupportedModelError, match="--bind") as refused:
        prepare(built)
    _follow(built, str(refused.value))


def test_shapes_that_contradict_the_model_are_answered_by_others(prepare_quickly: Prepare) -> None:
    built = SYMBOLIC["positions"][0]()
    with pytest.raises(UnsupportedModelError, match=r"node 'add' .* choose other shapes, such as --shape ids=1,50$"):
        prepare(built, {"ids": (1, 51)})


def test_a_shape_of_a_bound_input_must_fit_its_values(prepare_quickly: Prepare) -> None:
    built = DECIDED["Expand"]()
    assert prepare(built, {"s": (2,)}, bindings={"s": (3, 1)}).outputs[0].shape == (3, 8)
    with pytest.raises(UsageError, match="--shape s=3 does not fit the values that --bind gives"):
        prepare(built, {"s": (3,)}, bindings={"s": (3, 1)})


def test_a_set_of_a_dynamic_result_is_refused_by_node(prepare_quickly: Prepare) -> None:
    """IREE 3.13 crashes while it imports a Unique of a value whose sizes are not known."""
    nodes = [node("NonZero", ["x"], ["n"]), node("Unique", ["n"], ["u"]), node("ReduceSum", ["u"], ["y"], keepdims=0)]
    built = model(nodes, [_X], [("y", (), INT64)])
    built.graph.value_info.append(helper.make_tensor_value_info("n", INT64, (2, "k")))
    with pytest.raises(UnsupportedModelError, match=r"node '(nonzero|unique)' \((NonZero|Unique)\)"):
        prepare(built)


def test_a_bound_is_advised_for_a_loop_that_ends_when_its_body_says_so(prepare_quickly: Prepare) -> None:
    """With it, the steps that are taken are counted."""
    step = [
        node("Add", ["s", "s"], ["t"]),
        node("ReduceMax", ["t"], ["most"], keepdims=0),
        node("Less", ["most", "bound"], ["d"]),
    ]
    inputs: list[Value] = [("i", (), INT64), ("c", (), TensorProto.BOOL), ("s", (2, 3), FLOAT)]
    results: list[str | Value] = [("d", (), TensorProto.BOOL), ("t", (2, 3), FLOAT), ("t", (2, 3), FLOAT)]
    body = model(step, inputs, results, {"bound": np.float32(9)}).graph
    loop = node("Loop", ["n", "", "x"], ["z", "all"], body=body)
    built = model([loop], [("x", (2, 3), FLOAT), ("n", (), INT64)], [("all", None, FLOAT)])
    with pytest.raises(UnsupportedModelError, match=r"'loop' \(Loop\).*fix.* with --bind n="):
        prepare_quickly(built)
    prepared = prepare_quickly(built, bindings={"n": (3,)})
    assert [output.shape for output in prepared.outputs] == [(3, 2, 3), ()]


def test_a_branch_that_contradicts_is_left_to_the_input_that_chooses_it(prepare_quickly: Prepare) -> None:
    branches = {
        name: helper.make_graph(
            [node("Add", ["x", f"{name}/w"], [f"{name}/y"], name=f"{name}/add")],
            name,
            [],
            [helper.make_tensor_value_info(f"{name}/y", FLOAT, (2, 3))],
        )
        for name in ("then", "else")
    }
    choice = node("If", ["cond"], ["y"], then_branch=branches["then"], else_branch=branches["else"])
    built = model(
        [choice],
        [("x", ("b", 3), FLOAT), ("cond", (1,), TensorProto.BOOL)],
        ["y"],
        {"then/w": weights(2, 3), "else/w": weights(4, 3)},
    )
    with pytest.raises(UnsupportedModelError) as caught:
        prepare_quickly(built, {"x": (2, 3)})
    assert str(caught.value) == (
        "node 'if' (If) selects its branch by input 'cond': fix that with --bind cond=true, or with other values"
    )
    assert prepare_quickly(built, {"x": (2, 3)}, bindings={"cond": np.array([True])}).model.graph.node


def test_the_only_input_is_not_advised_to_be_fixed(prepare_quickly: Prepare) -> None:
    """It leaves nothing to compute."""
    built = _choice()
    del built.graph.input[1]
    nodes = [node("ReduceSum", ["x"], ["sum"], keepdims=0), node("Cast", ["sum"], ["odd name"], to=TensorProto.BOOL)]
    for each in reversed(nodes):
        built.graph.node.insert(0, each)
    with pytest.raises(UnsupportedModelError, match="end the model before it") as refused:
        prepare_quickly(built)
    assert "--bind" not in str(refused.value)


def test_lengths_have_positions_where_nothing_fits() -> None:
    built = _counted_positions()
    built.graph.initializer.append(numpy_helper.from_array(weights(3), "other"))
    built.graph.node.append(node("Add", ["y", "other"], ["z"]))
    assert suggested_shapes(built)["past"] == (1, 4, 4)
