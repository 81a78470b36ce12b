"""Codes of caches on the other side of a tie are as right as those of the reference; faults in caches are none."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

from sartor.onnx_model.states.explicit_appends import append_explicitly
from sartor.reference.tie_spread import rounds
from sartor.reference.tied_codes import coded_outputs, is_tied, settled
from sartor.runtime.driver.signature import Array
from tests.genai_models import BuiltDecoder

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
