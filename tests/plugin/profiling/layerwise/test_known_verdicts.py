"""A verdict holds for all files of the same layers, but for one on outputs that differ from run to run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

from sartor.profiling.layerwise.layer_verdict import LayerJudge
from sartor.profiling.layerwise.verdict import LayerVerdict
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
