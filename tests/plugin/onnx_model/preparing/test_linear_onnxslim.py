"""onnxslim gives the same models when it compares less."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto

from sartor.onnx_model.preparing import linear_onnxslim, simplify_worker
from tests.plugin.onnx_model.builders import FLOAT, model, node, weights
from tests.plugin.onnx_model.cases import CASES

_LENGTH = 60


def _alike() -> ModelProto:
    """Constants and nodes of which several are equal, and zeros of both signs."""
    constants: dict[str, Any] = {
        f"c{index}": np.array([index % 3, -0.0 if index % 2 else 0.0], np.float32) for index in range(9)
    }
    nodes = [node("Mul", ["x", f"c{index}"], [f"m{index}"], name=f"m{index}") for index in range(9)]
    nodes += [node("Softmax", ["x"], [f"s{index}"], name=f"s{index}", axis=index % 2) for index in range(4)]
    nodes.append(node("Sum", [each.output[0] for each in nodes], ["y"]))
    return model(nodes, [("x", (2, 2), FLOAT)], ["y"], constants)


def _simplified(built: ModelProto, monkeypatch: pytest.MonkeyPatch, *, by_key: bool) -> bytes:
    """What onnxslim returns; its own functions are put back afterwards."""
    with monkeypatch.context() as patch:
        for name in (linear_onnxslim._TYING, linear_onnxslim._ELIMINATION):
            module = importlib.import_module(name)
            for each in ("find_and_remove_replaceable_constants", "find_and_remove_replaceable_nodes"):
                if hasattr(module, each):
                    patch.setattr(module, each, getattr(module, each))
        if not by_key:
            patch.setattr(simplify_worker, "compare_by_key", lambda: None)
        return simplify_worker.simplify_bytes(built.SerializeToString())


@pytest.mark.parametrize("name", ["alike", "LSTM_forward", "if_of_shape", "ms_attention_mask", "pad_reflect"])
def test_models_come_out_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    built = _alike() if name == "alike" else CASES[name]()
    assert _simplified(built, monkeypatch, by_key=True) == _simplified(built, monkeypatch, by_key=False)


def test_only_those_are_compared_that_may_be_equal(monkeypatch: pytest.MonkeyPatch) -> None:
    constants = {f"c{index}": weights(3, seed=index) for index in range(_LENGTH)}
    nodes = [node("Mul", ["x", f"c{index}"], [f"m{index}"], name=f"m{index}") for index in range(_LENGTH)]
    built = model(nodes, [("x", (3,), FLOAT)], [each.output[0] for each in nodes], constants)
    tensors = importlib.import_module("onnxslim.third_party.onnx_graphsurgeon.ir.tensor")
    compared, equal = [0], tensors.Constant.__eq__

    def counted(one: Any, other: Any) -> Any:
        compared[0] += 1
        return equal(one, other)

    monkeypatch.setattr(tensors.Constant, "__eq__", counted)
    _simplified(built, monkeypatch, by_key=True)
    few = compared[0]
    _simplified(built, monkeypatch, by_key=False)
    assert few < 20 * _LENGTH < compared[0] - few
