"""Places that cannot be written, now or ever."""

from __future__ import annotations

import os
import shutil
import sqlite3
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from sartor.tuning.store.sqlite.errors import StoreUnavailableError
from sartor.tuning.store.store import Store
from tests.tuning.store.store_samples import FAILURE, KEY, MEASUREMENT
from tests.tuning.store.store_writer import measurement

NOBODY = 65534


def test_a_locked_store_says_so(path: Path) -> None:
    with Store.open(path, busy_timeout=0.05) as store, closing(sqlite3.connect(path)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailableError, match="locked by another process"):
            store.put(MEASUREMENT)
        with pytest.raises(StoreUnavailableError, match="locked by another process"):
            Store.open_to_write(path, busy_timeout=0.05)
        with Store.open(path, busy_timeout=0.05) as copy:
            assert not copy.persistent
            copy.put(MEASUREMENT)
        other.rollback()
        store.put(MEASUREMENT)
        assert store.get(KEY) == MEASUREMENT


def test_a_full_disk_says_so_and_keeps_what_was_there(path: Path) -> None:
    with Store.open(path) as store:
        store.put(MEASUREMENT)
        store._connection.execute("PRAGMA max_page_count = 4")
        with pytest.raises(StoreUnavailableError, match="free some space"):
            store.put_many(measurement(i) for i in range(100))
        assert store.get(KEY) == MEASUREMENT
        assert store.summary()[0].measurements == 1


def test_a_parent_that_is_a_file_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreUnavailableError, match="--tuning-db"):
        Store.open(tmp_path / "file" / "tuning.db")


@pytest.fixture
def read_only(path: Path) -> Iterator[Path]:
    """A store with one measurement, in a folder that this process may read but not write."""
    folder = Path(tempfile.mkdtemp())
    try:
        with Store.open(folder / "tuning.db") as store:
            store.put(MEASUREMENT)
        (folder / "tuning.db").chmod(0o444)
        folder.chmod(0o555)
        privileged = os.geteuid() == 0
        if privileged:
            os.seteuid(NOBODY)
        try:
            yield folder / "tuning.db"
        finally:
            if privileged:
                os.seteuid(0)
    finally:
        folder.chmod(0o755)
        shutil.rmtree(folder)


@pytest.mark.skipif(sys.platform == "win32", reason="permissions are POSIX")
def test_what_cannot_be_written_is_read_for_tuning_with_a_warning(
    read_only: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Store.open(read_only) as store:
        assert not store.persistent
        assert store.get(KEY) == MEASUREMENT
        store.put(FAILURE)
        assert store.get(FAILURE.key) == FAILURE
    assert "what is measured now is not kept" in caplog.records[0].getMessage()
    with Store.open_to_read(read_only) as store:
        assert list(store.measurements()) == [MEASUREMENT]
    with pytest.raises(StoreUnavailableError, match="--tuning-db"):
        Store.open_to_write(read_only)
    assert [file.name for file in read_only.parent.iterdir()] == ["tuning.db"]


@pytest.mark.skipif(sys.platform == "win32", reason="permissions are POSIX")
def test_a_database_that_cannot_be_created_is_an_error(read_only: Path) -> None:
    with pytest.raises(StoreUnavailableError, match="--tuning-db"):
        Store.open(read_only.parent / "new.db")


def test_work_goes_on_without_a_database_that_cannot_be_created(
    read_only: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for path in (read_only.parent / "new.db", read_only.parent / "new" / "tuning.db"):
        caplog.clear()
        with Store.open(path, goes_on=True) as store:
            store.put(MEASUREMENT)
            assert store.get(KEY) == MEASUREMENT
            assert not store.persistent
        (record,) = caplog.records
        assert record.getMessage().startswith(f"the tuning database {path} cannot be")
        assert record.getMessage().endswith("; what is measured now is not kept")


def test_a_disk_that_becomes_full_does_not_end_the_work(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with Store.open(path, goes_on=True) as store:
        store.put(MEASUREMENT)
        store._connection.execute("PRAGMA max_page_count = 4")
        many = [measurement(i) for i in range(100)]
        store.put_many(many)
        assert not store.persistent
        assert store.get(KEY) == MEASUREMENT
        assert all(store.get(each.key) == each for each in many)
        store.put(FAILURE)
        assert store.get(FAILURE.key) == FAILURE
    (record,) = caplog.records
    assert "free some space" in record.getMessage()
    assert "not kept" in record.getMessage()
    with Store.open_to_read(path) as kept:
        assert list(kept.measurements()) == [MEASUREMENT]


def test_who_only_reads_writes_nothing_into_an_empty_file(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.touch()
    with Store.open_to_read(path) as store:
        assert not list(store.measurements())
    assert path.stat().st_size == 0
