"""Databases that another version wrote, or another machine."""

from __future__ import annotations

import logging
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from sartor.codegen.ir.variants.renamed import former_names, renamed
from sartor.errors import UsageError
from sartor.tuning.store.sqlite import schema
from sartor.tuning.store.sqlite.errors import NewerStoreError
from sartor.tuning.store.store import Store
from tests.tuning.store.store_samples import FAILURE, KEY, MEASUREMENT, keyed, of_here

HERE = Path(__file__).parent


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "sartor" / "tuning.db"


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
