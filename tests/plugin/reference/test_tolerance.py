"""The tolerance follows from all types of a model, and from what ties move."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

from sartor.onnx_model.states.explicit_appends import append_explicitly
from sartor.reference.tie_spread import rounds, tie_spread
from sartor.reference.tied_codes import coded_outputs, is_tied, settled
from sartor.reference.tolerance import MOST_BY_ITSELF, tolerance
from sartor.runtime.driver.signature import Array
from tests.genai_models import BuiltDecoder
from tests.plugin.onnx_model.builders import FLOAT, FLOAT16, MS, model, node

HALF = 1e-2
SHAPE = [4]


def casts() -> ModelProto:
    nodes = [node("Cast", ["x"], ["h"], to=FLOAT16), node("Exp", ["h"], ["e"]), node("Cast", ["e"], ["y"], to=FLOAT)]
    return model(nodes, [("x", SHAPE, FLOAT)], ["y"])


def inputs() -> ModelProto:
    return model([node("Cast", ["x"], ["y"], to=FLOAT)], [("x", SHAPE, FLOAT16)], ["y"])


def weights() -> ModelProto:
    return model([node("Cast", ["w"], ["y"], to=FLOAT)], [], ["y"], {"w": np.ones(4, np.float16)})


def inferred() -> ModelProto:
    built = model([node("Relu", ["x"], ["y"])], [("x", SHAPE, FLOAT)], ["y"])
    built.graph.value_info.append(helper.make_tensor_value_info("h", TensorProto.BFLOAT16, SHAPE))
    return built


def inside() -> ModelProto:
    branch = helper.make_graph(casts().graph.node, "branch", [], [helper.make_tensor_value_info("y", FLOAT, SHAPE)])
    choice = node("If", ["c"], ["y"], then_branch=branch, else_branch=branch)
    return model([choice], [("c", [], TensorProto.BOOL), ("x", SHAPE, FLOAT)], ["y"])


def single() -> ModelProto:
    return model([node("Relu", ["x"], ["y"])], [("x", SHAPE, FLOAT)], ["y"])


@pytest.mark.parametrize(
    ("built", "allowed"),
    [
        (casts(), HALF),
        (inputs(), HALF),
        (weights(), HALF),
        (inferred(), HALF),
        (inside(), HALF),
        (single(), 1e-3),
    ],
)
def test_types_decide_the_tolerance(built: ModelProto, allowed: float) -> None:
    assert tolerance(built, 1e-3) == allowed
    assert tolerance(built, 0.5) == 0.5


def test_what_ties_move_is_allowed_and_no_more() -> None:
    assert tolerance(single(), 1e-3, 4e-3) == 6e-3
    assert tolerance(single(), 1e-2, 4e-3) == 1e-2
    assert tolerance(inputs(), 1e-3, 4e-3) == HALF


def test_no_bound_above_one_percent_comes_about_by_itself() -> None:
    for built in (single(), inputs()):
        assert tolerance(built, 1e-3, 0.2) == MOST_BY_ITSELF == 1e-2


STEP = 0.25
SHAPES = ((), (7,), (3, 5, 2), (2, 0))


def _quantised(opset: int, shape: tuple[int, ...], kind: int = TensorProto.FLOAT) -> ModelProto:
    """Values that are rounded to multiples of a step."""
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    constants = [
        numpy_helper.from_array(np.array(STEP, dtype), "step"),
        numpy_helper.from_array(np.array(0, np.int8), "zero"),
    ]
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "step", "zero"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "step", "zero"], ["y"]),
    ]
    values = [helper.make_tensor_value_info(name, kind, shape) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "quantised", values[:1], values[1:], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def _spread(model: ModelProto, x: np.ndarray) -> float:
    return tie_spread(model.SerializeToString(), [{"x": x}])


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("opset", [19, 21, 22, 23])
def test_values_next_to_ties_move_by_a_step(opset: int, shape: tuple[int, ...]) -> None:
    model = _quantised(opset, shape)
    ties, whole = (np.full(shape, each * STEP, np.float32) for each in (2.5, 2.0))
    # Both draws may leave the tie of a single value to the same side.
    moves = {0.0, 0.5} if ties.size == 1 else {0.5 if ties.size else 0.0}
    assert round(_spread(model, ties), 1) in moves
    assert _spread(model, whole) == 0


def test_values_of_half_precision_move_too() -> None:
    assert _spread(_quantised(22, (64,), TensorProto.FLOAT16), np.full(64, 0.5 * STEP, np.float16)) > 0


def test_samples_that_the_model_does_not_take_are_passed_over() -> None:
    """Drawn indices may lie outside of a table, where those that the user gives do not."""
    model = _quantised(17, (2,))
    table = numpy_helper.from_array(np.array([0.1, 2.5 * STEP], np.float32), "table")
    model.graph.initializer.append(table)
    model.graph.node.insert(0, helper.make_node("Gather", ["table", "i"], ["x"]))
    model.graph.input[0].CopyFrom(helper.make_tensor_value_info("i", TensorProto.INT64, [2]))
    outside, inside = ({"i": np.full(2, index)} for index in (9, 1))
    assert tie_spread(model.SerializeToString(), [outside]) == 0
    assert tie_spread(model.SerializeToString(), [outside, inside]) > 0


@pytest.mark.parametrize(
    "operator",
    ["DynamicQuantizeLSTM", "DynamicQuantizeMatMul", "MatMulIntegerToFloat", "QGemm", "QLinearAdd", "QLinearMatMul"],
)
def test_models_of_fused_operators_round_too(operator: str) -> None:
    """As ONNX Runtime's optimiser writes them, in place of the operators that they fuse."""
    assert rounds(model([node(operator, ["x"], ["y"], domain=MS)], [("x", (2,), FLOAT)], ["y"]))
    assert not rounds(model([node("FusedGemm", ["x"], ["y"], domain=MS)], [("x", (2,), FLOAT)], ["y"]))


_SCALE = 0.03
_ROWS = np.random.default_rng(0).standard_normal((1, 4, 9, 16))
_CODES = np.clip(np.rint(_ROWS / _SCALE), -128, 127).astype(np.int8)


def codes(rows: np.ndarray, scale: float = _SCALE) -> Array:
    return np.clip(np.rint(rows / scale), -128, 127).astype(np.int8)


def test_numbers_that_are_off_by_the_usual_bound_have_tied_codes() -> None:
    noise = np.random.default_rng(1).uniform(-1, 1, _ROWS.shape)
    for most in (1e-6, 1e-4, 1e-3):
        moved = codes(_ROWS + most * np.abs(_ROWS).max() * noise)
        assert is_tied(moved, _CODES)
    assert not np.array_equal(moved, _CODES)
    (found, other) = settled([moved, moved], [_CODES, _CODES], ["present", "logits"], {"present"})
    assert np.array_equal(found, _CODES)
    assert np.array_equal(other, moved)


def _two_off() -> Array:
    moved = _CODES.copy()
    moved[0, 0, 0, 0] += 2 if moved[0, 0, 0, 0] < 0 else -2
    return moved


def _stale(row: int) -> Array:
    moved = _CODES.copy()
    moved[:, :, row] = moved[:, :, row - 1]
    return moved


@pytest.mark.parametrize(
    "found",
    [
        pytest.param(np.roll(_CODES, 1, axis=2), id="a row off"),
        pytest.param(_stale(8), id="a stale row"),
        pytest.param(codes(_ROWS, 1.01 * _SCALE), id="another scale"),
        pytest.param(np.clip(np.floor(_ROWS / _SCALE), -128, 127).astype(np.int8), id="rounded down"),
        pytest.param(_two_off(), id="two off"),
        pytest.param(np.where(np.arange(9)[:, None] < 8, _CODES, 0).astype(np.int8), id="a row of zeros"),
        pytest.param(_CODES[:, :, :8], id="a row less"),
        pytest.param(_CODES.astype(np.int32), id="another type"),
    ],
)
def test_faults_are_no_ties(found: Array) -> None:
    assert not is_tied(found, _CODES)
    assert settled([found], [_CODES], ["present"], {"present"})[0] is found


def test_a_single_code_may_be_off_of_few() -> None:
    few = _CODES[:, :1, :1, :4]
    moved = few.copy()
    moved[0, 0, 0, 0] += 1
    assert is_tied(moved, few)
    assert is_tied(few[:, :0], few[:, :0])


def test_caches_in_8_bits_are_the_outputs_that_hold_codes() -> None:
    model = BuiltDecoder(layers=1, has_codes=True).model()
    assert rounds(model)
    assert not rounds(BuiltDecoder(layers=1).model())
    append_explicitly(model)
    assert coded_outputs(model) == {"present.0.key", "present.0.value"}
    assert rounds(model)


def test_integers_that_are_not_rounded_are_no_codes() -> None:
    nodes = [
        helper.make_node("Clip", ["x", "", ""], ["bounded"], name="bounded"),
        helper.make_node("Cast", ["bounded"], ["y"], name="y", to=TensorProto.INT8),
    ]
    values = [helper.make_tensor_value_info(name, kind, [4]) for name, kind in (("x", 1), ("y", TensorProto.INT8))]
    graph = helper.make_graph(nodes, "graph", values[:1], values[1:])
    assert not coded_outputs(helper.make_model(graph))
