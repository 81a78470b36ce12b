"""Files that are not what they should be."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from sartor.errors import UsageError
from sartor.tuning.store.sqlite import schema
from sartor.tuning.store.sqlite.errors import StoreUnavailableError
from sartor.tuning.store.store import Store
from tests.tuning.store.store_samples import KEY, MEASUREMENT
from tests.tuning.store.store_writer import measurement

OPENINGS = [Store.open, Store.open_to_write, Store.open_to_read]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "sartor" / "tuning.db"


def _other_database(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript("CREATE TABLE t (x); INSERT INTO t VALUES (1);")


def _truncated(path: Path) -> None:
    _filled(path)
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2 + 100)


def _overwritten(path: Path) -> None:
    _filled(path)
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(os.urandom(8192))


def _without_table(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA application_id = {schema.APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {len(schema.MIGRATIONS)}")


def _filled(path: Path) -> None:
    with Store.open(path) as store:
        store.put_many(measurement(i) for i in range(50))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: path.write_bytes(b"\x7fELF" + bytes(5000)), "not a Sartor tuning database"),
        (lambda path: path.write_text("x"), "not a Sartor tuning database"),
        (_other_database, "not a Sartor tuning database"),
        (_truncated, "is damaged"),
        (_overwritten, "is damaged"),
        (Path.mkdir, "is a folder"),
    ],
    ids=["binary", "text", "other", "truncated", "overwritten", "folder"],
)
@pytest.mark.parametrize("opening", OPENINGS, ids=["tune", "write", "read"])
def test_files_that_cannot_be_used_are_refused_and_left_as_they_are(
    tmp_path: Path, make: Callable[[Path], object], message: str, opening: Callable[[Path], Store]
) -> None:
    path = tmp_path / "tuning.db"
    make(path)
    before = path.read_bytes() if path.is_file() else None
    with pytest.raises(UsageError, match=message) as caught:
        opening(path)
    assert not isinstance(caught.value, StoreUnavailableError)
    assert str(path) in str(caught.value)
    assert "--tuning-db" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert (path.read_bytes() if path.is_file() else None) == before


def test_a_store_without_its_table_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "tuning.db"
    _without_table(path)
    with pytest.raises(UsageError, match=r"damaged \(no such table"):
        Store.open(path)
    with Store.open_to_read(path) as store, pytest.raises(UsageError, match=r"damaged \(no such table"):
        store.get(KEY)


@pytest.mark.parametrize(
    "change",
    [
        "status = 'splendid'",
        "samples = x'00'",
        "samples = 'text'",
        "samples = x''",
        "error = -1",
        "error = 'text'",
        "created = 9e999",
    ],
)
def test_rows_that_make_no_sense_are_damage(path: Path, change: str) -> None:
    with Store.open(path) as store:
        store.put(MEASUREMENT)
        with closing(sqlite3.connect(path)) as other:
            other.execute(f"UPDATE measurements SET {change}")
            other.commit()
        with pytest.raises(UsageError, match="damaged"):
            store.get(KEY)


@pytest.mark.parametrize(
    "change", ["task = x'ff'", "threads = 'many'", "created = x'00'", "message = x'00'", "facts = x''"]
)
def test_values_of_other_types_are_damage(path: Path, change: str) -> None:
    with Store.open(path) as store:
        store.put(MEASUREMENT)
        with closing(sqlite3.connect(path)) as other:
            other.execute("PRAGMA ignore_check_constraints = ON")
            other.execute(f"UPDATE measurements SET {change}")
            other.commit()
        with pytest.raises(UsageError, match="damaged"):
            list(store.measurements())
