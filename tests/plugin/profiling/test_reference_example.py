"""ONNX Runtime runs once for a model, whatever the number of its compilations, unless something differs."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from sartor.frontend.imported_model import Origin
from sartor.profiling.reference_example import ReferenceExample
from sartor.progress import silent
from sartor.reference.reference_job import ReferenceOutputs, ReferenceRun
from sartor.tuning.kept.values import KeptValues

KEY = "a" * 80
FEEDS = {"x": np.ones((1, 4), np.float32)}


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What ONNX Runtime was asked to do, in place of which it only gives some numbers."""
    asked: list[str] = []

    def outputs(self: ReferenceRun, _: object) -> ReferenceOutputs:
        asked.append("run")
        return ReferenceOutputs((np.full(3, len(asked), np.float32),), (np.ones(3),), (), "ONNX Runtime")

    def begin(self: ReferenceRun, _: object) -> None:
        asked.append("begin")

    monkeypatch.setattr(ReferenceRun, "outputs", outputs)
    monkeypatch.setattr(ReferenceRun, "begin", begin)
    return asked


def example(kept: KeptValues, found: str, *, threads: int = 1) -> ReferenceExample:
    imported: Any = SimpleNamespace(
        path=Path("model.onnx"), prepared=Path("prepared.onnx"), bound=(), origin=Origin(b"", (), found)
    )
    samples: Any = SimpleNamespace(first=FEEDS, are_given=False)
    pool: Any = None
    return ReferenceExample(imported, samples, pool, silent, threads, narrow=False, kept=kept)


def test_kept_outputs_stand_for_those_of_the_same_import(tmp_path: Path, runs: list[str]) -> None:
    kept = KeptValues(tmp_path / "imports")
    first = example(kept, "")
    first.begin_ahead()
    value = first.value
    first.keep(KEY)
    assert runs == ["begin", "run"]
    again = example(kept, KEY)
    again.begin_ahead()
    assert again.known is not None
    np.testing.assert_array_equal(again.value.outputs[0], value.outputs[0])
    assert again.described == "ONNX Runtime"
    again.keep(KEY)
    assert runs == ["begin", "run"]
    for other in (example(kept, "b" * 80), example(kept, ""), example(kept, KEY, threads=2)):
        other.begin_ahead()
        assert other.known is None
        assert other.value is not None
    assert runs == ["begin", "run"] * 4


def test_what_was_not_computed_is_not_kept(tmp_path: Path, runs: list[str]) -> None:
    kept = KeptValues(tmp_path / "imports")
    example(kept, "").keep(KEY)
    assert not kept.may_have(KEY[:16])
    assert runs == []
