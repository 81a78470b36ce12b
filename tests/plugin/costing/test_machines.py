"""Where a compilation measures."""

from __future__ import annotations

import sys
from contextlib import ExitStack

import pytest

from sartor.cli.commands.worker import worker
from sartor.config import CompileConfig
from sartor.costing.machines import Machines, machines_of
from sartor.errors import UsageError

WORKERS = CompileConfig(threads=3, workers="tcp://127.0.0.1:9")


@pytest.fixture
def no_dask(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if Dask were not installed."""
    for name in [module for module in sys.modules if module.startswith("sartor.tuning.cluster.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "distributed", None)


def test_without_workers_this_machine_measures() -> None:
    with machines_of(CompileConfig(threads=3)) as machines:
        assert not machines.are_elsewhere
        assert machines.settings(WORKERS) is WORKERS


def test_workers_measure_with_their_own_number_of_threads_unless_one_is_named() -> None:
    there = Machines(threads=4)
    assert there.settings(WORKERS).threads == there.settings(WORKERS).target.threads == 4
    named = CompileConfig(threads=3, workers="tcp://127.0.0.1:9", fixes_threads=True)
    assert there.settings(named).threads == 3


@pytest.mark.usefixtures("no_dask")
def test_without_dask_one_sentence_says_what_to_install() -> None:
    with pytest.raises(UsageError, match=r"sartor\[cluster\]"), ExitStack() as stack:
        stack.enter_context(machines_of(WORKERS))
    with pytest.raises(UsageError, match=r"sartor\[cluster\]"):
        worker("tcp://127.0.0.1:9")
