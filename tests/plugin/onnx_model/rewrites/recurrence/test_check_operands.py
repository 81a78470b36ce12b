"""Recurrent nodes whose operands do not fit each other are refused by name."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto

from sartor.errors import UnsupportedModelError
from sartor.onnx_model.preparing.prepare import prepare
from tests.plugin.onnx_model.builders import FLOAT, model, node, weights

_STEPS, _BATCH, _READ, _HIDDEN = 3, 2, 4, 5
_GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


def _recurrent(operator: str, changed: dict[str, Any], **attributes: Any) -> ModelProto:
    rows = _GATES[operator] * _HIDDEN
    operands: dict[str, Any] = {"W": weights(1, rows, _READ), "R": weights(1, rows, _HIDDEN), "B": weights(1, 2 * rows)}
    operands |= changed
    order = ("W", "R", "B", "sequence_lens", "initial_h", "initial_c", "P")
    names = ["x", *(name if name in operands else "" for name in order)]
    given = {"hidden_size": _HIDDEN, **attributes}
    built = node(operator, names, ["y"], name="cell", **{key: each for key, each in given.items() if each is not None})
    return model([built], [("x", (_STEPS, _BATCH, _READ), FLOAT)], ["y"], operands)


@pytest.mark.parametrize("operator", _GATES)
@pytest.mark.parametrize(
    ("name", "shape"),
    [
        *(("W", (1, 5, 4)), ("W", (1, 20, 3)), ("R", (1, 20, 4)), ("R", (1, 7, 5)), ("B", (1, 5)), ("W", (2, 20, 4))),
        *(("initial_h", (1, 3, 5)), ("sequence_lens", (3,))),
    ],
)
def test_operands_that_do_not_fit_are_refused_by_name(operator: str, name: str, shape: tuple[int, ...]) -> None:
    if operator == "RNN" and (name, shape) == ("W", (1, 5, 4)):
        shape = (1, 20, 4)
    values = np.full(shape, _STEPS, np.int32) if name == "sequence_lens" else weights(*shape)
    with pytest.raises(UnsupportedModelError) as refused:
        prepare(_recurrent(operator, {name: values}))
    said = str(refused.value)
    assert said.startswith(f"node 'cell' ({operator}) has {list(shape)} as the shape of its input '{name}', which ")


@pytest.mark.parametrize(
    ("attributes", "reason"),
    [
        ({"hidden_size": None}, "has None as its attribute 'hidden_size', which is a number"),
        ({"hidden_size": 6}, "has [1, 20, 4] as the shape of its input 'W', which its input of shape [3, 2, 4] and"),
        ({"direction": "up"}, "has 'up' as its attribute 'direction', which is forward, reverse or bidirectional"),
        ({"direction": "bidirectional"}, "make [2, 20, 4]"),
        ({"activations": ["Tanh"]}, "has 1 activations where it needs 3"),
    ],
)
def test_attributes_that_do_not_fit_are_refused_by_name(attributes: dict[str, Any], reason: str) -> None:
    with pytest.raises(UnsupportedModelError, match=rf"^node 'cell' \(LSTM\) .*{re.escape(reason)}"):
        prepare(_recurrent("LSTM", {}, **attributes))


def test_states_are_by_batch_where_the_batch_comes_first() -> None:
    built = _recurrent("GRU", {"initial_h": weights(_STEPS, 1, _HIDDEN)}, layout=1)
    assert prepare(built).model.graph.node
