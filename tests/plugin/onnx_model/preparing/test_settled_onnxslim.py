"""onnxslim gives the same models when it skips what changes nothing."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, shape_inference

from sartor.onnx_model.preparing import settled_onnxslim, simplify_worker
from tests.plugin.onnx_model.builders import FLOAT, model, node, weights
from tests.plugin.onnx_model.cases import CASES

_GRAPH: Any = importlib.import_module(settled_onnxslim._GRAPH)
_IMPORTER: Any = importlib.import_module("onnxslim.third_party.onnx_graphsurgeon")


def _layers(count: int, *, backwards: bool = False) -> ModelProto:
    """Branches that are summed, and so nodes at different distances from the input."""
    nodes = []
    for index in range(count):
        nodes.append(node("Mul", [f"m{index - 1}" if index else "x", "c"], [f"m{index}"], name=f"m{index}"))
        nodes.append(node("Add", ["x", f"c{index}"], [f"a{index}"], name=f"a{index}"))
    nodes.append(node("Sum", [each.output[0] for each in nodes], ["y"], name="sum"))
    constants: dict[str, Any] = {"c": weights(3)} | {f"c{index}": weights(3, seed=index + 1) for index in range(count)}
    return model(nodes[::-1] if backwards else nodes, [("x", (3,), FLOAT)], ["y"], constants)


def _foldable() -> ModelProto:
    """A shape that is known only after a fold, so that there are several rounds."""
    sizes = {"two": np.array([2], np.int64), "rest": np.array([-1], np.int64)}
    nodes = [
        node("Concat", ["two", "rest"], ["to"], name="to", axis=0),
        node("Reshape", ["x", "to"], ["r"], name="r"),
        node("Shape", ["r"], ["s"], name="s"),
        node("Expand", ["b", "s"], ["e"], name="e"),
        node("Add", ["r", "e"], ["y"], name="y"),
    ]
    return model(nodes, [("x", (2, 3), FLOAT), ("b", (3,), FLOAT)], ["y"], sizes)


_MODELS = {
    "layers": lambda: _layers(5),
    "foldable": _foldable,
    **{name: CASES[name] for name in ("LSTM_forward", "if_of_shape", "ms_attention_mask", "pad_reflect")},
}


@contextmanager
def _settled(monkeypatch: pytest.MonkeyPatch, *, skips: bool) -> Iterator[None]:
    """onnxslim as it is, or changed; as it is afterwards."""
    with monkeypatch.context() as patch:
        core, utilities = map(importlib.import_module, (settled_onnxslim._CORE, settled_onnxslim._UTILITIES))
        for owner, name in ((core, "shape_infer"), (utilities, "check_point"), (_GRAPH.Graph, "toposort")):
            patch.setattr(owner, name, getattr(owner, name))
        for name in ("skip_settled", "compare_by_key"):
            patch.setattr(simplify_worker, name, lambda: None)
        if skips:
            settled_onnxslim.skip_settled.__wrapped__()
        yield


def _simplified(built: ModelProto, monkeypatch: pytest.MonkeyPatch, *, skips: bool) -> bytes:
    """What onnxslim returns, without the types, which are inferred again."""
    with _settled(monkeypatch, skips=skips):
        slim = ModelProto.FromString(simplify_worker.simplify_bytes(built.SerializeToString()))
    del slim.graph.value_info[:]
    return slim.SerializeToString(deterministic=True)


@pytest.mark.parametrize("name", _MODELS)
def test_models_come_out_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    built = _MODELS[name]()
    assert _simplified(built, monkeypatch, skips=True) == _simplified(built, monkeypatch, skips=False)


def test_models_that_stay_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read, reads = _IMPORTER.import_onnx, [0]

    def counted(given: ModelProto) -> Any:
        reads[0] += 1
        return read(given)

    built = shape_inference.infer_shapes(ModelProto.FromString(_simplified(_layers(5), monkeypatch, skips=False)))
    monkeypatch.setattr(_IMPORTER, "import_onnx", counted)
    _simplified(built, monkeypatch, skips=False)
    usual, reads[0] = reads[0], 0
    _simplified(built, monkeypatch, skips=True)
    assert (reads[0], usual) == (1, 3)


@pytest.mark.parametrize("backwards", [False, True])
def test_nodes_are_sorted_as_onnxslim_sorts_them(monkeypatch: pytest.MonkeyPatch, *, backwards: bool) -> None:
    built = _layers(5, backwards=backwards)
    expected = [each.name for each in _IMPORTER.import_onnx(built).toposort().nodes]
    with _settled(monkeypatch, skips=True):
        assert [each.name for each in _IMPORTER.import_onnx(built).toposort().nodes] == expected
    graph = _IMPORTER.import_onnx(built)
    assert (settled_onnxslim._sorted(graph) is None) == backwards
