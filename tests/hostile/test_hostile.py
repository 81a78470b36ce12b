"""A fixed part of the inputs of ``python -m tests.hostile``, and tests that the runner detects findings."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.synchronize import Event
from pathlib import Path

import pytest

from tests.hostile import runner
from tests.hostile.corpus import write_corpus
from tests.hostile.runner import Report, damaged, label, run
from tests.hostile.subjects import SUBJECTS

_SEED = 0
_COUNT = 150


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of valid files."""
    folder = tmp_path_factory.mktemp("corpus")
    write_corpus(folder)
    return folder


def test_damaged_files_are_refused_or_read(corpus: Path, tmp_path: Path) -> None:
    report = Report()
    for outcome in run(_SEED, range(_COUNT), corpus, tmp_path):
        report.add(outcome)
    assert [f"#{finding.number}: {finding.finding}" for finding in report.findings] == []
    assert sum(report.counts.values()) == _COUNT
    assert {line.partition(":")[0] for line in report.counts} == {label(subject) for subject in SUBJECTS}
    assert any("taken" in line for line in report.counts)
    assert any("UnsupportedModelError" in line for line in report.counts)


def test_the_same_numbers_are_the_same_files(corpus: Path) -> None:
    assert [damaged(1, number, corpus) for number in range(40)] == [damaged(1, number, corpus) for number in range(40)]
    assert damaged(1, 3, corpus) != damaged(2, 3, corpus)


def _for_ever(until: Event, computing: bool) -> None:
    while not until.is_set():
        if not computing:
            until.wait(0.01)


@pytest.mark.parametrize("computing", [True, False])
def test_a_process_that_computes_or_waits_for_long_has_hung(monkeypatch: pytest.MonkeyPatch, computing: bool) -> None:
    monkeypatch.setattr(runner, "_LOOK_SECONDS", 0.02)
    monkeypatch.setattr(runner, "_WAITING", 1000 if computing else 1)
    context = multiprocessing.get_context("fork")
    own, remote = context.Pipe()
    until = context.Event()
    process = context.Process(target=_for_ever, args=(until, computing))
    process.start()
    try:
        assert not runner._answers(own, process, 0.2)
        remote.send("something")
        assert runner._answers(own, process, 0.2)
    finally:
        until.set()
        process.join()


def _escape(path: Path, _: Path) -> None:
    (path.parent / "link.bin").read_bytes()


def _litter(path: Path, _: Path) -> None:
    path.with_name("litter").touch()


def _fail(path: Path, _: Path) -> None:
    raise KeyError("?")


@pytest.mark.parametrize(("read", "said"), [(_escape, "opened"), (_litter, "left"), (_fail, "KeyError: '?'")])
def test_what_must_not_happen_is_noticed(
    corpus: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    read: Callable[[Path, Path], None],
    said: str,
) -> None:
    monkeypatch.setattr(runner, "SUBJECTS", [replace(subject, read=read) for subject in SUBJECTS])
    watch = runner._Watch()
    with watch:
        outcome = runner._one(0, 0, corpus, tmp_path, watch)
    assert said in outcome.finding
