"""What verdicts say of other files: of the same layers the same, of others of one rewrite what may be its fault."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

from sartor.errors import UnsupportedModelError
from sartor.profiling.layerwise import layer_verdict
from sartor.profiling.layerwise.layer_verdict import LayerJudge
from sartor.profiling.layerwise.verdict import LayerVerdict
from sartor.reference.layerwise.layer_check import CheckedLayers, WrongTensor
from tests.plugin.onnx_model.builders import Array


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
