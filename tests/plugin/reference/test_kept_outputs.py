"""ONNX Runtime's outputs of an earlier compilation stand for those of the same run only."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sartor.errors import UsageError
from sartor.reference import expected_outputs
from sartor.reference.kept_outputs import keep_outputs, kept_outputs
from sartor.reference.reference_job import ReferenceOutputs, ReferenceRun, reference_outputs
from sartor.runtime.driver.bound_input import BoundInput
from sartor.runtime.driver.signature import TensorSpec
from sartor.tuning.kept.values import KeptValues
from tests.plugin.onnx_model.builders import FLOAT, model, node

KEY = "a" * 80
FEEDS = {"x": np.arange(6, dtype=np.float32).reshape(2, 3)}
RUN = ReferenceRun((Path("model.onnx"), Path("prepared.onnx")), Path("prepared.onnx"), FEEDS, 1, False)
OUTPUTS = ReferenceOutputs((np.ones(4, np.float32),), (np.full(4, 0.5),), ("it was refused",), "ONNX Runtime")


@pytest.fixture
def kept(tmp_path: Path) -> KeptValues:
    found = KeptValues(tmp_path / "imports")
    keep_outputs(found, KEY, RUN, OUTPUTS)
    return found


def test_outputs_of_the_same_run_come_back(kept: KeptValues) -> None:
    found = kept_outputs(kept, KEY, replace(RUN, feeds={"x": FEEDS["x"].copy()}))
    assert found is not None
    np.testing.assert_array_equal(found.arrays[0], OUTPUTS.arrays[0])
    np.testing.assert_array_equal(found.scales[0], OUTPUTS.scales[0])
    assert (found.refused, found.described) == (OUTPUTS.refused, OUTPUTS.described)


@pytest.mark.parametrize(
    "change",
    [
        {"feeds": {"x": FEEDS["x"] + 1}},
        {"feeds": {"x": FEEDS["x"].reshape(3, 2)}},
        {"feeds": {"x": FEEDS["x"].view(np.int32)}},
        {"feeds": {"y": FEEDS["x"]}},
        {"threads": 2},
        {"narrow": True},
        {"bound": (BoundInput(TensorSpec("n", "int64", ()), (3,)),)},
        {"models": (Path("prepared.onnx"),)},
    ],
)
def test_those_of_another_run_are_not_used(kept: KeptValues, change: dict[str, Any]) -> None:
    assert kept_outputs(kept, KEY, replace(RUN, **change)) is None


def test_those_of_another_import_are_not_used_nor_those_of_one_that_is_forgotten(kept: KeptValues) -> None:
    assert kept_outputs(kept, "b" * 80, RUN) is None
    kept.remove(KEY)
    assert kept_outputs(kept, KEY, RUN) is None


def test_what_was_said_about_outputs_is_said_again(
    kept: KeptValues, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As where ONNX Runtime does not run the copies by which rounding is known."""
    built = model([node("Relu", ["x"], ["y"])], [("x", (2, 3), FLOAT)], ["y"])
    path = tmp_path / "model.onnx"
    path.write_bytes(built.SerializeToString())

    def outputs() -> ReferenceOutputs:
        found = reference_outputs([path], path, FEEDS, 1, narrow=False)
        assert isinstance(found, ReferenceOutputs)
        return found

    plain = outputs()
    keep_outputs(kept, "c" * 80, RUN, plain)
    assert kept_outputs(kept, "c" * 80, RUN) is not None

    def fails(*_: object, **__: object) -> None:
        raise UsageError("it does not run")

    monkeypatch.setattr(expected_outputs, "disturbed_feeds", fails)
    doubtful = outputs()
    assert (plain.has_warned, doubtful.has_warned) == (False, True)
    keep_outputs(kept, "d" * 80, RUN, doubtful)
    assert kept_outputs(kept, "d" * 80, RUN) is None


def test_outputs_that_take_much_room_are_not_kept(kept: KeptValues) -> None:
    large = np.broadcast_to(np.float32(0), (1 << 25,))
    keep_outputs(kept, "c" * 80, RUN, replace(OUTPUTS, arrays=(large,)))
    assert not kept.may_have("c")
