"""The store's file: several processes, killed processes."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from sartor.errors import UsageError
from sartor.tuning.store.store import Store
from tests.tuning.store.store_samples import FAILURE, KEY, MEASUREMENT
from tests.tuning.store.store_writer import measurement

WRITER = Path(__file__).parents[1] / "store_writer.py"


def test_a_store_is_created_with_its_folders_and_found_again(path: Path) -> None:
    with Store.open(path) as store:
        assert store.persistent
        store.put(MEASUREMENT)
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    with Store.open(path) as store:
        assert store.get(KEY) == MEASUREMENT


def test_an_empty_file_is_a_new_store(path: Path) -> None:
    path.parent.mkdir(parents=True)
    path.touch()
    with Store.open(path) as store:
        store.put(MEASUREMENT)
    with Store.open(path) as store:
        assert store.get(KEY) == MEASUREMENT


def test_two_processes_may_use_one_store(path: Path) -> None:
    with Store.open(path) as first, Store.open(path) as second:
        first.put(MEASUREMENT)
        second.put(FAILURE)
        assert first.get(FAILURE.key) == FAILURE
        assert second.get(KEY) == MEASUREMENT


def test_many_processes_may_create_one_store_at_the_same_time(path: Path) -> None:
    command = [sys.executable, str(WRITER), "write", str(path)]
    writers = [subprocess.Popen([*command, str(1000 * i)], stdout=subprocess.PIPE) for i in range(3)]
    for writer in writers:
        assert writer.stdout is not None
        assert writer.stdout.readline().strip().isdigit()
        writer.kill()
        writer.communicate()
    with Store.open(path) as store:
        assert store.summary()[0].measurements >= 3


@pytest.mark.parametrize("seconds", [0.0, 0.05, 0.2])
def test_a_killed_writer_loses_nothing_that_was_committed(path: Path, seconds: float) -> None:
    first = 0
    for _ in range(2):
        command = [sys.executable, str(WRITER), "write", str(path), str(first)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            committed = [int(writer.stdout.readline())]
            time.sleep(seconds)
            writer.kill()
            committed += [int(line) for line in writer.stdout.read().split("\n")[:-1]]
        with Store.open(path) as store:
            assert all(store.get(measurement(i).key) == measurement(i) for i in range(committed[-1] + 1))
        first = committed[-1] + 1


def test_a_store_killed_while_it_is_created_opens(tmp_path: Path) -> None:
    for seconds in (0.0, 0.01, 0.03):
        folder = tmp_path / str(seconds)
        folder.mkdir()
        command = [sys.executable, str(WRITER), "create", str(folder)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as writer:
            assert writer.stdout is not None
            writer.stdout.readline()
            time.sleep(seconds)
            writer.kill()
        for path in folder.glob("*.db"):
            with Store.open(path) as store:
                store.put(MEASUREMENT)
                assert store.get(KEY) == MEASUREMENT


def test_a_failed_put_many_stores_nothing(path: Path) -> None:
    with Store.open(path) as store:
        with closing(sqlite3.connect(path)) as other:
            other.execute("CREATE TRIGGER t BEFORE INSERT ON measurements WHEN new.task = 'bad' "
                          "BEGIN SELECT raise(ABORT, 'no'); END")  # fmt: skip
        bad = replace(MEASUREMENT, key=replace(KEY, task="bad"))
        with pytest.raises(UsageError):
            store.put_many([MEASUREMENT, bad])
        assert store.get(KEY) is None
        store.put(MEASUREMENT)
        assert store.get(KEY) == MEASUREMENT
