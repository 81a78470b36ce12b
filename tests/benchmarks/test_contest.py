"""Contests: who takes part, what is an error, which inputs count."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import onnx
import pytest

from benchmarks import contest
from benchmarks.contest import EVALUATED_FROM, Contest, LostError, Start, Timed, calibration_samples
from benchmarks.peers import Run
from benchmarks.record.experiments import entries_of
from benchmarks.zoo import sample_inputs, write
from sartor.errors import CompileError
from sartor.onnx_model.reading.load import load_model
from sartor.runtime.driver.signature import Array
from tests.tiny_models import Builder


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write("lenet5", tmp_path_factory.mktemp("zoo"))


def _scaled(factor: float, start: Start) -> Run:
    reference = contest.open_onnxruntime(start)
    return lambda feeds: [each * np.float32(factor) for each in reference(feeds)]


def _broken(start: Start) -> Run:
    raise CompileError("it does not compile")


def _failing(start: Start) -> Run:
    def run(feeds: Mapping[str, Array]) -> Sequence[Array]:
        raise CompileError("it does not run")

    return run


def _crashing(start: Start) -> Run:
    os._exit(11)


def _timed(model: Path, seen: list[Mapping[str, Array]]) -> Timed:
    def watching(start: Start) -> Run:
        def run(feeds: Mapping[str, Array]) -> Sequence[Array]:
            seen.append(feeds)
            return start.expected

        return run

    rivals: dict[str, contest.Opener] = {
        "right": partial(_scaled, 1.0),
        "wrong": partial(_scaled, 1.5),
        "broken": _broken,
        "failing": _failing,
        "watching": watching,
    }
    return contest._time(Contest(model, 1, rivals, seconds=0.0, evaluated=2))


def test_errors_are_of_inputs_that_calibrate_nobody(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contest, "BLOCK", 1e-3)
    seen: list[Mapping[str, Array]] = []
    timed = _timed(model, seen)
    loaded = load_model(model)
    first, second = (sample_inputs(loaded, EVALUATED_FROM + number)["input"] for number in range(2))
    assert {feeds["input"].tobytes() for feeds in seen} == {first.tobytes(), second.tobytes()}
    calibrating = {calibration_sample["input"].tobytes() for calibration_sample in calibration_samples(model, 16)}
    assert not calibrating & {first.tobytes(), second.tobytes()}
    assert timed.timings["right"].error < 1e-6
    assert timed.timings["wrong"].error == pytest.approx(0.5, rel=1e-3)
    # What it returns is right for the first of the inputs only.
    assert timed.timings["watching"].error > 1e-3


def test_who_fails_is_named_and_takes_no_part(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contest, "BLOCK", 1e-3)
    timed = _timed(model, [])
    entries, failures = entries_of([timed, timed])
    assert failures == {"broken": "it does not compile", "failing": "it does not run"}
    assert not {"broken", "failing"} & set(entries)
    assert len(entries["right"].samples) == 2
    assert entries["right"].is_right
    assert not entries["wrong"].is_right


def test_a_contest_in_which_all_fail_has_no_times(model: Path) -> None:
    timed = contest._time(Contest(model, 1, {"broken": _broken}, seconds=0.0))
    assert timed == Timed({}, {"broken": "it does not compile"})


def test_who_ends_its_process_is_named_and_the_others_are_timed(model: Path) -> None:
    rivals: dict[str, contest.Opener] = {
        "crashing": _crashing,
        "broken": _broken,
        "right": contest.open_onnxruntime,
    }
    (timed,) = contest.time_in_processes(Contest(model, 1, rivals, seconds=0.0), 1)
    assert timed.failures == {"crashing": "it ended its process", "broken": "it does not compile"}
    assert set(timed.timings) == {"right"}
    alone = Contest(model, 1, {"crashing": _crashing}, seconds=0.0)
    assert contest.time_in_processes(alone, 1) == [Timed({}, {"crashing": "it ended its process"})]


def test_a_reference_that_ends_its_process_is_no_competitors_fault(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(given: Contest) -> Timed:
        raise LostError("it ended its process")

    monkeypatch.setattr(contest, "_in_process", lost)
    with pytest.raises(LostError):
        contest.time_in_processes(Contest(model, 1, {"right": contest.open_onnxruntime}, seconds=0.0), 1)


def test_who_is_lost_beside_others_alone_is_told(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def crowded(given: Contest) -> Timed:
        if len(given.rivals) > 1:
            raise LostError("it ended its process")
        return Timed({}, {})

    monkeypatch.setattr(contest, "_in_process", crowded)
    rivals: dict[str, contest.Opener] = {"one": contest.open_onnxruntime, "two": contest.open_onnxruntime}
    (timed,) = contest.time_in_processes(Contest(model, 1, rivals, seconds=0.0), 1)
    assert timed == Timed({}, dict.fromkeys(rivals, "beside the others it ended its process"))


def test_a_process_that_does_not_end_is_given_up(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contest, "_PATIENCE", 0.05)
    with pytest.raises(LostError, match="did not end"):
        contest._in_process(Contest(model, 1, {"right": contest.open_onnxruntime}, seconds=0.0))


def test_what_rounding_alone_decides_is_no_error(tmp_path: Path) -> None:
    """Of a difference of equal products nothing is left but their rounding, which others round otherwise."""
    size = 256
    factors = np.random.default_rng(0).standard_normal((size, size)).astype(np.float32)
    b = Builder()
    turned = b.op("Gather", "turned", "x", b.constant(np.arange(size)[::-1].copy()), axis=1)
    b.op(
        "Sub",
        "y",
        b.op("MatMul", "a", "x", b.constant(factors)),
        b.op("MatMul", "c", turned, b.constant(factors[::-1].copy())),
    )
    built = b.model([("x", (1, size))], [("y", (1, size))])
    onnx.save(built, tmp_path / "noise.onnx")
    shuffled = np.random.default_rng(1).permutation(size)

    def other_order(start: Start) -> Run:
        def run(feeds: Mapping[str, Array]) -> Sequence[Array]:
            x = feeds["x"]
            return [x @ factors - x[:, shuffled] @ factors[shuffled]]

        return run

    timed = contest._time(Contest(tmp_path / "noise.onnx", 1, {"other": other_order}, seconds=0.0))
    assert timed.timings["other"].error < 0.1
