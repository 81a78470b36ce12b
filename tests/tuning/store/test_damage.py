"""Files that are not what they should be, and databases of other versions or machines."""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from sartor.codegen.ir.variants.renamed import former_names, renamed
from sartor.errors import UsageError
from sartor.tuning.store.sqlite import schema
from sartor.tuning.store.sqlite.errors import NewerStoreError, StoreUnavailableError
from sartor.tuning.store.store import Store
from tests.tuning.store.store_samples import FAILURE, KEY, MEASUREMENT, keyed, of_here
from tests.tuning.store.store_writer import measurement

OPENINGS = [Store.open, Store.open_to_write, Store.open_to_read]


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


HERE = Path(__file__).parent


@pytest.mark.parametrize("version", range(1, len(schema.MIGRATIONS) + 1))
def test_databases_of_every_version_are_read(path: Path, version: int) -> None:
    path.parent.mkdir(parents=True)
    script = (HERE / "data" / f"store_v{version}.sql").read_text(encoding="utf-8")
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(script)
    with Store.open(path) as store:
        assert store.get(KEY) == MEASUREMENT
        assert store.get(FAILURE.key) == FAILURE
        store.put(replace(FAILURE, message="again"))


def test_measurements_from_before_a_routine_was_renamed_have_its_new_name(path: Path) -> None:
    old, new = "cpu:f32/block.columns_of_panels{lanes=16,vectors=4}", "cpu:f32/block.columns_of_4{lanes=16}"
    with Store.open(path) as store:
        store.put(keyed(MEASUREMENT, variant=old))
    with Store.open(path) as store:
        assert list(store.measurements()) == [keyed(MEASUREMENT, variant=new)]
        assert store.get(keyed(MEASUREMENT, variant=new).key) == keyed(MEASUREMENT, variant=new)
        again = replace(keyed(MEASUREMENT, variant=new), error=0.5)
        store.put(again)
        assert store.get(again.key) == again


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("cpu:f32/block.columns_of_panels{lanes=16,vectors=4}", "cpu:f32/block.columns_of_4{lanes=16}"),
        ("cpu:f32/block.columns_of_panels{vectors=2}", "cpu:f32/block.columns_of_2"),
        ("cpu:i8/block.block_panel_dots{depth=4}", "cpu:i8/block.block_dots{depth=4}"),
    ],
)
def test_old_and_new_names_lead_to_each_other(old: str, new: str) -> None:
    assert renamed(old) == new
    assert former_names(new) == [old]
    assert former_names("cpu:f32/conv2d.tiled{depth=4}") == []


def test_an_older_database_is_brought_up_to_date(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Store.open(path) as store:
        store.put(MEASUREMENT)
    step = ("ALTER TABLE measurements ADD COLUMN note TEXT", "UPDATE measurements SET note = 'migrated'")
    monkeypatch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, step))
    with Store.open(path) as store:
        assert store.get(KEY) == MEASUREMENT
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT note FROM measurements").fetchall() == [("migrated",)]
        assert connection.execute("PRAGMA user_version").fetchone() == (len(schema.MIGRATIONS),)


def test_a_migration_that_fails_changes_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Store.open(path) as store:
        store.put(MEASUREMENT)
    with monkeypatch.context() as patch:
        step = ("ALTER TABLE measurements ADD COLUMN note TEXT", "not a statement")
        patch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, step))
        with pytest.raises(UsageError, match="damaged"):
            Store.open(path)
    with Store.open(path) as store:
        assert store.get(KEY) == MEASUREMENT


def test_tuning_goes_on_without_a_newer_database(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "tuning.db"
    _newer(path)
    before = path.read_bytes()
    with Store.open(path) as store:
        assert not store.persistent
        assert store.summary() == ()
        store.put(MEASUREMENT)
        assert store.get(KEY) == MEASUREMENT
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    for said in (str(path), "version 99", "update Sartor", "--tuning-db", "is ignored"):
        assert said in record.getMessage()
    assert path.read_bytes() == before


def test_who_looks_into_a_newer_database_is_told(tmp_path: Path) -> None:
    path = tmp_path / "tuning.db"
    _newer(path)
    for opening in (Store.open_to_write, Store.open_to_read):
        with pytest.raises(NewerStoreError, match="version 99"):
            opening(path)


def test_a_database_of_elsewhere_warns_once_and_is_added_to(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with Store.open(path) as store:
        store.put(MEASUREMENT)
    assert caplog.records == []
    with Store.open(path) as store:
        store.put(of_here(MEASUREMENT))
    (record,) = caplog.records
    assert "other machines or versions only" in record.getMessage()
    with Store.open(path) as store:
        assert store.get(KEY) == MEASUREMENT
    assert len(caplog.records) == 1


def _newer(path: Path) -> None:
    with Store.open(path):
        pass
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 99")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
