"""Layers of quantised models are compared, and verdicts say what they know of other files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from onnx import ModelProto

from sartor.codegen.ir.layer import NetworkValue, TensorType
from sartor.errors import UnsupportedModelError
from sartor.onnx_model.preparing.prepare import prepare
from sartor.profiling.layerwise import layer_verdict
from sartor.profiling.layerwise.check_job import check_rewritten
from sartor.profiling.layerwise.layer_verdict import LayerJudge
from sartor.profiling.layerwise.verdict import LayerVerdict
from sartor.reference.layerwise.layer_check import CheckedLayers, Claim, WrongTensor
from sartor.reference.trusted.reference_model import ReferenceModel
from sartor.runtime.driver.counts import count_name
from tests.plugin.onnx_model.builders import FLOAT, INT64, Array, model, node, weights

SAMPLES = [{"x": weights(6, 4, seed=seed)} for seed in (1, 2)]
OUTPUTS = ["y", "found", count_name("y", 0), count_name("found", 1)]


def _selecting() -> ModelProto:
    """Rows of quantised numbers that a condition chooses, and the places of the numbers above zero."""
    constants = {"s": np.float32(0.1), "z": np.int8(3), "w": weights(4, 3, seed=3), "zero": np.float32(0)}
    constants |= {"first": np.int64(0)}
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], ["q"], name="q"),
        node("DequantizeLinear", ["q", "s", "z"], ["d"], name="d"),
        node("Greater", ["d", "zero"], ["g"]),
        node("Gather", ["g", "first"], ["c"], axis=1),
        node("Compress", ["d", "c"], ["rows"], axis=0),
        node("MatMul", ["rows", "w"], ["y"]),
        node("NonZero", ["g"], ["found"]),
    ]
    return model(nodes, [("x", (6, 4), FLOAT)], ["y", ("found", None, INT64)], constants)


def _file(folder: Path) -> Path:
    path = folder / "selecting.onnx"
    path.write_bytes(_selecting().SerializeToString())
    return path


def _rewritten(path: Path, prepared: ModelProto) -> CheckedLayers:
    claims = {"rows": ("rows", Claim("select"))}
    found = check_rewritten(path, prepared.SerializeToString(), claims, OUTPUTS, SAMPLES)
    assert isinstance(found, CheckedLayers), found.error
    return found


def test_a_rewritten_model_is_compared_where_it_is_valid(tmp_path: Path) -> None:
    path, prepared = _file(tmp_path), prepare(_selecting()).model
    assert [output.name for output in prepared.graph.output] == OUTPUTS
    assert _rewritten(path, prepared).wrong == ()
    # What is selected was not rounded.
    gather = next(item for item in prepared.graph.node if item.output[0] == "rows")
    gather.input[0] = "x"
    assert _rewritten(path, prepared).wrong[0].tensor == "y"


@pytest.mark.parametrize("moved", [0.0, 0.1])
def test_a_module_is_compared_by_the_outputs_that_a_session_returns(
    moved: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(*_: object) -> list[list[Array]]:
        reference = ReferenceModel(path)
        return [[first + np.float32(moved), second] for first, second in map(reference, SAMPLES)]

    def call(_: object, function: Any, job: dict[str, Any], __: str) -> object:
        return function(**job)

    def call_each(_: object, function: Any, jobs: list[dict[str, Any]], __: str) -> list[Any]:
        return [function(**job) for job in jobs]

    path = _file(tmp_path)
    monkeypatch.setattr(LayerJudge, "_run", run)
    monkeypatch.setattr(layer_verdict, "call", call)
    monkeypatch.setattr(layer_verdict, "call_each", call_each)
    monkeypatch.setattr(layer_verdict, "shown_results", lambda *_: [])
    sizes = {"y": ((6, 3), "f32"), "found": ((2, 24), "i64"), OUTPUTS[2]: ((), "i64"), OUTPUTS[3]: ((), "i64")}
    recipe, imported = Mock(), Mock(path=path, bound=())
    recipe.plan.unsplit, recipe.digest, recipe.graph.layers, recipe.graph.inputs = False, "", (), ()
    recipe.graph.outputs = [
        NetworkValue(name, TensorType(shape, kind), {"f32": "float32", "i64": "int64"}[kind])
        for name, (shape, kind) in sizes.items()
    ]
    judge = LayerJudge(imported, Mock(), tmp_path, Mock(), "cpu", 1)
    found: LayerVerdict = judge._of_module(recipe, Mock(), SAMPLES)
    assert found.reason == ""
    assert found.is_right == (not moved)


def _judge(folder: Path, numbers: list[int], monkeypatch: pytest.MonkeyPatch) -> LayerJudge:
    """A judge of a module whose runs give these numbers, and of an instrumented one that gives others."""
    runs: Iterator[list[list[Array]]] = iter([[[np.full(1, number)]] for number in numbers])
    monkeypatch.setattr(LayerJudge, "_run", lambda *_: next(runs))
    monkeypatch.setattr(LayerJudge, "_compared", lambda *_: LayerVerdict(is_mislinked=True))
    return LayerJudge(Mock(), Mock(), folder, Mock(), "cpu", 1)


def test_of_outputs_that_differ_from_run_to_run_nothing_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge = _judge(tmp_path, [1, 2, 1, 2], monkeypatch)
    for _ in range(2):
        assert judge._of_module(Mock(digest=""), Mock(), []).reason == "its outputs differ from run to run"


def test_the_same_outputs_are_judged_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    judge = _judge(tmp_path, [1, 1, 1], monkeypatch)
    for _ in range(2):
        assert judge._of_module(Mock(digest=""), Mock(), []).is_mislinked


WRONG = WrongTensor("conv", "q", "node 'q' (QuantizeLinear)", 2, 9)


@pytest.mark.parametrize("compares", [True, False])
def test_where_a_rewrite_may_be_wrong_only_modules_whose_layers_are_right_are(
    compares: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A layer of one module is wrong, the rewritten model can or cannot be compared, and later ones follow."""

    def checked(*_: object) -> CheckedLayers:
        if not compares:
            raise UnsupportedModelError("nobody runs it")
        return CheckedLayers(("conv",))

    verdicts = iter([LayerVerdict(1, wrong=WRONG), LayerVerdict(1), LayerVerdict(reason="they have no names")])
    monkeypatch.setattr(LayerJudge, "_of_module", lambda *_: next(verdicts))
    monkeypatch.setattr(layer_verdict, "checked_layers", checked)
    imported, layered, whole = Mock(), Mock(), Mock()
    judge = LayerJudge(imported, Mock(), tmp_path, Mock(), "cpu", 1)
    imported.graph.layers = ()
    layered.plan.unsplit, layered.graph.layers, whole.plan.unsplit = False, (), True
    wrong, right, unknown = (judge.verdict(layered, Mock(), []) for _ in range(3))
    assert wrong.wrong is WRONG
    assert right.is_right
    for verdict in (unknown, judge.verdict(whole, Mock(), [])):
        assert (verdict.suspect is None) == compares
    assert ("of another plan layer 'conv' (node 'q' (QuantizeLinear)) is wrong" in unknown.sentence) == (not compares)
