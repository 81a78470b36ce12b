"""A rewrite that fails on a sound model is a defect of Sartor, and on a damaged one a fault of the model."""

from __future__ import annotations

import pytest
from onnx import ModelProto, TensorProto

from sartor.errors import InternalError, UnsupportedModelError
from sartor.onnx_model.graphs.graph import GraphEditor, attributes
from sartor.onnx_model.preparing import prepare as preparing
from tests.plugin.onnx_model.builders import FLOAT, model, node, weights


def _failing(built: ModelProto) -> tuple[str, ...]:
    return GraphEditor(built.graph).rewrite(lambda each: attributes(each)["missing"])


def _failing_outside(built: ModelProto) -> tuple[str, ...]:
    return (built.graph.node[9].name,)


@pytest.mark.parametrize(
    ("rewrite", "error"), [(_failing, "KeyError: 'missing'"), (_failing_outside, "IndexError: list index out of range")]
)
def test_a_sound_model_is_not_called_malformed(
    rewrite: preparing.Rewrite, error: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preparing, "LOWER", (rewrite,))
    sound = model([node("Relu", ["x"], ["y"])], [("x", (2, 3), FLOAT)], [("y", (2, 3), FLOAT)])
    with pytest.raises(InternalError, match=error) as raised:
        preparing.prepare(sound)
    assert raised.value.exit_code == 70
    assert "in sartor.onnx_model." in str(raised.value)
    assert "malformed" not in str(raised.value)


def test_a_damaged_model_is() -> None:
    nodes = [node("RNN", ["x", "w", "r"], ["y", "last"], hidden_size=4)]
    constants = {"w": weights(1, 4, 3), "r": weights(1, 4, 4)}
    damaged = model(nodes, [("x", (5, 2, 3), TensorProto.STRING)], ["y", "last"], constants)
    with pytest.raises(UnsupportedModelError, match=r"node 'rnn' \(RNN\) is malformed"):
        preparing.prepare(damaged)
