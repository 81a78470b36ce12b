"""What single rewrites do to a graph, beyond keeping its results."""

from __future__ import annotations

import logging

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

from sartor.errors import UnsupportedModelError
from sartor.onnx_model.graphs.names import name_nodes, producer_names, restore_names
from sartor.onnx_model.rewrites.structure.drop_unused import drop_unused
from sartor.onnx_model.rewrites.structure.eliminate_identity import eliminate_identity
from sartor.onnx_model.rewrites.structure.flush_denormals import flush_denormals
from sartor.onnx_model.rewrites.structure.fold_constants import fold_constants
from sartor.onnx_model.rewrites.structure.initializers import initializers_only
from sartor.onnx_model.rewrites.structure.sort_nodes import sort_nodes
from tests.plugin.onnx_model.builders import FLOAT, FLOAT16, INT64, ints, model, node, run, weights
from tests.plugin.onnx_model.cases import CASES
from tests.plugin.onnx_model.conftest import Prepare

X = [("x", (2, 3), FLOAT)]


def _operators(built: ModelProto) -> list[str]:
    return [item.op_type for item in built.graph.node]


def test_nameless_and_repeated_nodes_get_names() -> None:
    nodes = [
        node("Relu", ["x"], ["a"], name=""),
        node("Relu", ["a"], ["b"], name="same"),
        node("Neg", ["b"], ["c"], name="same"),
        node("Relu", ["c"], ["y"], name="Relu_0"),
    ]
    built = model(nodes, X, ["y"])
    assert name_nodes(built) == ("Relu_0_1", "same_1")
    assert [item.name for item in built.graph.node] == ["Relu_0_1", "same", "same_1", "Relu_0"]


def test_names_come_back_after_a_tool_has_renamed_nodes() -> None:
    built = model([node("Relu", ["x"], ["a"], name="first"), node("Neg", ["a"], ["y"], name="second")], X, ["y"])
    names = producer_names(built)
    built.graph.node[0].name = "a/Relu"
    built.graph.node[1].name = "y/Neg"
    restore_names(built, names)
    assert [item.name for item in built.graph.node] == ["first", "second"]


def test_sorting_keeps_a_sorted_order_and_mends_another() -> None:
    nodes = [
        node("Neg", ["b"], ["y"]),
        node("Relu", ["x"], ["a"]),
        node("Abs", ["a"], ["b"]),
        node("Exp", ["x"], ["z"]),
    ]
    built = model(nodes, X, ["y", "z"])
    assert sort_nodes(built)
    assert _operators(built) == ["Relu", "Abs", "Neg", "Exp"]
    assert sort_nodes(built) == ()


def test_sorting_sees_what_bodies_read() -> None:
    built = CASES["if_of_shape"]()
    built.graph.node.insert(0, built.graph.node.pop())
    sort_nodes(built)
    assert _operators(built)[-1] == "If"


def test_sorting_lets_the_last_of_repeated_constants_count() -> None:
    constants = [
        node("Constant", [], ["c"], value=numpy_helper.from_array(np.full((1,), value, np.float32))) for value in (1, 2)
    ]
    built = model([node("Add", ["x", "c"], ["y"]), *constants], X, ["y"])
    sort_nodes(built)
    assert _operators(built) == ["Constant", "Constant", "Add"]
    held = [numpy_helper.to_array(item.attribute[0].t).item() for item in built.graph.node[:2]]
    assert held == [1, 2]


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ([node("Neg", ["b"], ["a"]), node("Abs", ["a"], ["b"])], r"node 'neg' \(Neg\) depends on its own result"),
        ([node("Neg", ["x"], ["a"]), node("Abs", ["x"], ["a"])], r"node 'abs' \(Abs\) computes 'a', which another"),
    ],
)
def test_graphs_without_an_order(nodes: list[object], message: str) -> None:
    with pytest.raises(UnsupportedModelError, match=message):
        sort_nodes(model(nodes, X, ["a"]))  # type: ignore[arg-type]


def test_initializers_leave_the_inputs(prepare_quickly: Prepare) -> None:
    built = model([node("Add", ["x", "w"], ["y"])], [*X, ("w", (2, 3), FLOAT)], ["y"], {"w": weights(2, 3)})
    built.ir_version = 3
    prepared = prepare_quickly(built)
    assert [info.name for info in prepared.inputs] == ["x"]
    assert prepared.model.ir_version >= 8


def test_unused_input_stays_in_the_signature(prepare_quickly: Prepare) -> None:
    built = model([node("Relu", ["x"], ["y"])], [*X, ("unused", (1,), INT64)], ["y"])
    assert [info.name for info in prepare_quickly(built).inputs] == ["x", "unused"]


@pytest.mark.parametrize(
    "attributes",
    [
        {"value": numpy_helper.from_array(np.array(2, np.float32))},
        {"value_float": 2.0},
        {"value_floats": [2.0]},
        {
            "sparse_value": helper.make_sparse_tensor(
                numpy_helper.from_array(np.array([2, 2, 2], np.float32)), numpy_helper.from_array(np.arange(3)), [3]
            )
        },
        {
            "sparse_value": helper.make_sparse_tensor(
                numpy_helper.from_array(np.array([2, 2, 2], np.float32)),
                numpy_helper.from_array(np.array([[0, 0], [0, 1], [0, 2]])),
                [1, 3],
            )
        },
    ],
)
def test_every_form_of_constant(attributes: dict[str, object]) -> None:
    built = model([node("Constant", [], ["c"], **attributes), node("Mul", ["x", "c"], ["y"])], X, ["y"])
    initializers_only(built)
    assert _operators(built) == ["Mul"]
    x = weights(2, 3)
    np.testing.assert_array_equal(run(built, {"x": x})["y"], x * 2)


def test_last_of_two_constants_counts(caplog: pytest.LogCaptureFixture) -> None:
    """ONNX Runtime, which accepts such models, takes the last one."""
    nodes = [node("Constant", [], ["c"], value_float=value) for value in (3.0, 2.0)]
    built = model([*nodes, node("Mul", ["x", "c"], ["y"])], X, ["y"])
    x = weights(2, 3)
    expected = run(built, {"x": x})["y"]
    with caplog.at_level(logging.WARNING):
        initializers_only(built)
    assert "1 constants are defined more than once" in caplog.text
    np.testing.assert_array_equal(run(built, {"x": x})["y"], expected)


def test_folding_does_not_grow_the_model() -> None:
    """A large result of small constants is left; small ones, and large ones of large constants, are folded."""
    constants = {"one": np.ones((1, 1), np.float32), "big": np.array([400, 400]), "w": weights(300, 200)}
    nodes = [
        node("Expand", ["one", "big"], ["large"]),
        node("Transpose", ["w"], ["turned"]),
        node("MatMul", ["x", "turned"], ["p"]),
        node("ReduceMax", ["large"], ["m"], keepdims=0),
        node("Add", ["p", "m"], ["y"]),
    ]
    built = model(nodes, [("x", (2, 200), FLOAT)], ["y"], constants)
    fold_constants(built)
    assert _operators(built) == ["Expand", "MatMul", "ReduceMax", "Add"]
    assert built.ByteSize() < 2 * 300 * 200 * 4 + 2**16


def test_quantised_weights_stay_small(prepare_quickly: Prepare) -> None:
    constants = {"q": np.ones((300, 300), np.int8), "s": np.float32(0.1)}
    nodes = [node("DequantizeLinear", ["q", "s"], ["w"]), node("MatMul", ["x", "w"], ["y"])]
    built = model(nodes, [("x", (2, 300), FLOAT)], ["y"], constants)
    assert _operators(prepare_quickly(built).model) == ["DequantizeLinear", "MatMul"]


def test_output_that_folds_to_a_constant(prepare_quickly: Prepare) -> None:
    built = model([node("Shape", ["x"], ["y"])], X, [("y", None, INT64)])
    prepared = prepare_quickly(built)
    assert prepared.outputs[0].shape == (2,)
    assert run(prepared.model, {"x": weights(2, 3)})["y"].tolist() == [2, 3]


def test_nodes_of_the_taken_branch_keep_their_names(prepare_quickly: Prepare) -> None:
    prepared = prepare_quickly(CASES["if_of_shape"]())
    assert [item.name for item in prepared.model.graph.node] == ["then_add", "then_relu"]


def test_identities_go_and_outputs_keep_their_names() -> None:
    nodes = [
        node("Relu", ["x"], ["a"]),
        node("Identity", ["a"], ["b"], name="to_output"),
        node("Dropout", ["b"], ["c"]),
        node("Cast", ["c"], ["d"], to=FLOAT),
        node("Neg", ["d"], ["e"]),
        node("Identity", ["e"], ["y"], name="to_y"),
        node("Identity", ["x"], ["z"], name="of_input"),
    ]
    built = model(nodes, X, ["b", "y", "z"])
    x = weights(2, 3)
    expected = run(built, {"x": x})
    eliminate_identity(built)
    assert [item.name for item in built.graph.node] == ["relu", "neg", "of_input"]
    for name, value in run(built, {"x": x}).items():
        np.testing.assert_array_equal(value, expected[name])


def test_denormal_weights_are_flushed_and_epsilons_kept() -> None:
    tiny = np.float32(1e-40)
    constants = {"w": np.array([[1, tiny, -tiny, 0]], np.float32), "e": tiny, "h": np.full(3, 1e-7, np.float16)}
    built = model([node("Mul", ["x", "w"], ["y"])], [("x", (1, 4), FLOAT)], ["y"], constants)
    assert flush_denormals(built) == ("w",)
    kept = {tensor.name: numpy_helper.to_array(tensor) for tensor in built.graph.initializer}
    assert kept["w"].tolist() == [[1, 0, 0, 0]]
    assert kept["e"] == tiny
    assert (kept["h"] > 0).all()


def test_dead_nodes_and_weights_go() -> None:
    built = model([node("Relu", ["x"], ["y"]), node("Mul", ["x", "w"], ["dead"])], X, ["y"], {"w": weights(2, 3)})
    assert drop_unused(built) == ("mul",)
    assert not built.graph.initializer


@pytest.mark.parametrize(
    ("built", "message"),
    [
        (
            model(
                [node("GridSample", ["x", "g"], ["y"], mode="cubic")],
                [("x", (1, 1, 4, 4, 4), FLOAT), ("g", (1, 2, 2, 2, 3), FLOAT)],
                ["y"],
            ),
            r"node 'gridsample' \(GridSample\) is not supported: IREE 3.13 compiles cubic GridSample of volumes",
        ),
        (
            model(
                [node("RoiAlign", ["x", "r", "i"], ["y"])],
                [("x", (1, 1, 4, 4), FLOAT), ("r", (1, 4), FLOAT)],
                ["y"],
                {"i": np.zeros(1, np.int64)},
                opset=16,
            ),
            r"node 'roialign' \(RoiAlign\) takes as many samples as its regions are large.*give it a sampling_ratio",
        ),
        (
            model(
                [node("FusedConv", ["x", "w"], ["y"], domain="com.microsoft", activation="Mystery")],
                [("x", (1, 1, 4, 4), FLOAT)],
                ["y"],
                {"w": weights(1, 1, 3, 3)},
            ),
            r"node 'fusedconv' \(com.microsoft.FusedConv\) has the activation 'Mystery'",
        ),
        (
            model(
                [node("Resize", ["x", "", "", "s"], ["y"], mode="linear", antialias=1)],
                [("x", (1, 650_000, 8), FLOAT)],
                ["y"],
                {"s": ints(1, 2000, 8)},
                opset=18,
            ),
            r"node 'resize' \(Resize\) makes 2000 elements of 650000, which each read more than 512",
        ),
        (
            model(
                [node("Conv", ["x", "w"], ["y"], strides=[0, 0], auto_pad="SAME_UPPER")],
                [("x", (1, 1, 4, 4), FLOAT)],
                [("y", (1, 1, 4, 4), FLOAT)],
                {"w": weights(1, 1, 3, 3)},
            ),
            r"node 'conv' \(Conv\)|contradict",
        ),
    ],
)
def test_what_cannot_be_expressed_is_refused_by_name(built: ModelProto, message: str, prepare_quickly: Prepare) -> None:
    with pytest.raises(UnsupportedModelError, match=message):
        prepare_quickly(built)


def test_windows_that_fit_are_not_rounded_up(prepare_quickly: Prepare) -> None:
    for width, stride, left in ((2, 1, 0), (10, 3, 1), (9, 3, 0), (8, 3, 0)):
        pooling = node("MaxPool", ["x"], ["y"], kernel_shape=[2, 2], strides=[2, stride], ceil_mode=1)
        built = model([pooling], [("x", (1, 3, 4, width), FLOAT)], ["y"])
        (found,) = prepare_quickly(built).model.graph.node
        assert [item.i for item in found.attribute if item.name == "ceil_mode"] == [1] * left


@pytest.mark.parametrize(
    "name", ["AveragePool_rounded_up_uncounted", "MaxPool_rounded_up_flat", "MaxPool_rounded_up_single"]
)
def test_windows_that_iree_rounds_up_wrongly_are_padded(name: str, prepare_quickly: Prepare) -> None:
    found = prepare_quickly(CASES[name]()).model.graph.node
    assert found[0].op_type == "Pad"
    assert not [item for each in found for item in each.attribute if item.name == "ceil_mode"]


def test_pixels_from_channels_that_iree_reads_in_another_order_are_transposed(prepare_quickly: Prepare) -> None:
    assert _operators(prepare_quickly(CASES["depth_to_space_crd"]()).model) == ["Reshape", "Transpose", "Reshape"]


def test_windows_that_are_computed_in_f32_are_trimmed(prepare_quickly: Prepare) -> None:
    pooling = node("AveragePool", ["x"], ["y"], kernel_shape=[1, 7], strides=[2, 2])
    prepared = prepare_quickly(model([pooling], [("x", (5, 1, 2, 8), FLOAT16)], [("y", None, FLOAT16)])).model
    assert _operators(prepared) == ["Cast", "Slice", "AveragePool", "Cast"]


def test_pads_add_and_slices_remove(prepare_quickly: Prepare) -> None:
    prepared = prepare_quickly(CASES["pad_and_crop_axes"]()).model
    pads = [numpy_helper.to_array(item) for item in prepared.graph.initializer if item.name.endswith("pads")]
    assert sorted(_operators(prepared)) == ["Pad", "Slice"]
    assert all((pad >= 0).all() for pad in pads)


def test_texts_where_numbers_belong_are_refused(prepare_quickly: Prepare) -> None:
    nodes = [node("RNN", ["x", "w", "r"], ["y", "last"], hidden_size=4)]
    constants = {"w": weights(1, 4, 3), "r": weights(1, 4, 4)}
    with pytest.raises(UnsupportedModelError, match=r"node 'rnn' \(RNN\) is malformed"):
        prepare_quickly(model(nodes, [("x", (5, 2, 3), TensorProto.STRING)], ["y", "last"], constants))


def test_a_product_of_sizes_that_do_not_fit_is_refused_by_name(prepare_quickly: Prepare) -> None:
    product = node("MatMul", ["x", "w"], ["y"], name="product")
    built = model([product], [("x", (4, 9), FLOAT), ("w", (8, 4), FLOAT)], [])
    built.graph.output.append(helper.make_tensor_value_info("y", FLOAT, (4, 4)))
    with pytest.raises(UnsupportedModelError, match=r"node 'product' \(MatMul\) contradicts .* export the model again"):
        prepare_quickly(built)
