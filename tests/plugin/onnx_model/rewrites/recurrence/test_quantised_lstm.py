"""ONNX Runtime's LSTM by matrices of bytes, beside its kernel."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import ModelProto

from sartor.errors import UnsupportedModelError
from sartor.reference.random_inputs import sample_inputs
from tests.plugin.onnx_model.builders import FLOAT, MS, Value, model, node, relative_error, run, weights
from tests.plugin.onnx_model.conftest import Prepare

_STEPS, _INPUTS, _HIDDEN = 5, 6, 8
# An integer that a rounding difference of the state moves by one.
_ALLOWED = 2e-3


def _model(kind: type, count: int, *, per_column: bool = False, **attributes: Any) -> ModelProto:
    random = np.random.default_rng(0)
    # Sums of two products stay within 16 bits, which some processors do not leave.
    least, most = (-64, 64) if kind is np.int8 else (0, 256)
    steps = (count, 4 * _HIDDEN) if per_column else (count,)
    constants: dict[str, Any] = {
        "w": random.integers(least, most, (count, _INPUTS, 4 * _HIDDEN)).astype(kind),
        "r": random.integers(least, most, (count, _HIDDEN, 4 * _HIDDEN)).astype(kind),
        "b": weights(count, 8 * _HIDDEN, scale=0.3),
        "p": weights(count, 3 * _HIDDEN, seed=1, scale=0.3),
        **{"ws": random.random(steps).astype(np.float32) * np.float32(0.01)},
        **{"rs": random.random(steps).astype(np.float32) * np.float32(0.01)},
        **{name: np.full(steps, 0 if kind is np.int8 else 128, kind) for name in ("wz", "rz")},
    }
    operands = ["x", "w", "r", "b", "", "h", "c", "p", "ws", "wz", "rs", "rz"]
    one = attributes.pop("direction", "forward")
    lstm = node(
        "DynamicQuantizeLSTM",
        operands,
        ["y", "y_h", "y_c"],
        domain=MS,
        hidden_size=_HIDDEN,
        direction="bidirectional" if count == 2 else one,
        **attributes,
    )
    state: list[Value] = [(name, (count, 1, _HIDDEN), FLOAT) for name in "hc"]
    return model([lstm], [("x", (_STEPS, 1, _INPUTS), FLOAT), *state], ["y", "y_h", "y_c"], constants)


@pytest.mark.parametrize("kind", [np.int8, np.uint8])
@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("per_column", [True, False])
@pytest.mark.parametrize("attributes", [{}, {"direction": "reverse", "input_forget": 0, "clip": 1.5}])
def test_steps_are_those_of_onnx_runtime(
    kind: type, count: int, attributes: dict[str, Any], prepare_quickly: Prepare, *, per_column: bool
) -> None:
    built = _model(kind, count, per_column=per_column, **attributes)
    feeds = sample_inputs(built, 3)
    expected, computed = run(built, feeds), run(prepare_quickly(built).model, feeds)
    for name, values in expected.items():
        assert relative_error(computed[name], values) <= _ALLOWED


def test_matrices_that_are_inputs_are_refused(prepare_quickly: Prepare) -> None:
    built = _model(np.int8, 1)
    tensor = next(item for item in built.graph.initializer if item.name == "r")
    value = built.graph.input.add(name="r")
    value.type.tensor_type.elem_type = tensor.data_type
    for size in tensor.dims:
        value.type.tensor_type.shape.dim.add(dim_value=size)
    built.graph.initializer.remove(tensor)
    with pytest.raises(UnsupportedModelError, match="weights of bytes that are not constant; use the float model"):
        prepare_quickly(built)
