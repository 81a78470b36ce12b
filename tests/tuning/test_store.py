from __future__ import annotations

import importlib.util
import math
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from sartor.errors import UsageError
from sartor.tuning import store_schema
from sartor.tuning.measurement import Measurement, MeasurementKey, Status
from sartor.tuning.store import Store
from sartor.tuning.store_errors import StoreUnavailableError

HERE = Path(__file__).parent
WRITER = HERE / "store_writer.py"
NOBODY = 65534

KEY = MeasurementKey("task", "cpu:f32/conv2d.nhwc{tile=4}", "source", "machine", 1, "runtime 1", "cpu/host")
MEASUREMENT = Measurement(
    KEY,
    Status.OK,
    samples=(0.1, 1e-300, math.pi, 5e-324),
    baseline_samples=(1 / 3,),
    error=1e-7,
    created=1000.5,
    packed_bytes=2**40,
)
FAILURE = Measurement(
    replace(KEY, variant="cpu:f32/conv2d.winograd{tile=6}"),
    Status.CRASHED,
    message="SIGSEGV\n\0\udcff 'quoted' \N{SNOWMAN}",
    created=2000.0,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "sartor" / "tuning.db"


@pytest.fixture(params=["file", "memory"])
def store(request: pytest.FixtureRequest, path: Path) -> Iterator[Store]:
    with Store.open(path) if request.param == "file" else Store.in_memory() as store:
        yield store


# What every store does.


def test_measurements_come_back_bit_by_bit(store: Store) -> None:
    store.put(MEASUREMENT)
    store.put(FAILURE)
    assert store.get(KEY) == MEASUREMENT
    assert store.get(FAILURE.key) == FAILURE


@pytest.mark.parametrize("status", Status)
def test_every_status_and_error_is_kept(store: Store, status: Status) -> None:
    for error in (None, 0.0, math.inf):
        store.put(replace(MEASUREMENT, status=status, error=error))
        assert store.get(KEY) == replace(MEASUREMENT, status=status, error=error)


@pytest.mark.parametrize(
    "change",
    [
        {"task": "TASK"},
        {"variant": "cpu:f32/conv2d.nhwc{tile=8}"},
        {"source": "source "},
        {"hardware": "other"},
        {"threads": 2},
        {"runtime": "runtime 2"},
        {"backend": "vulkan/llvmpipe"},
    ],
)
def test_a_key_that_differs_anywhere_does_not_match(store: Store, change: dict[str, object]) -> None:
    store.put(MEASUREMENT)
    assert store.get(replace(KEY, **change)) is None  # type: ignore[arg-type]


def test_the_latest_measurement_of_a_key_is_kept(store: Store) -> None:
    store.put(MEASUREMENT)
    store.put(replace(MEASUREMENT, samples=(9.0,)))
    assert store.get(KEY) == replace(MEASUREMENT, samples=(9.0,))
    assert store.summary()[0].measurements == 1


def test_get_many_returns_what_there_is_in_the_order_asked_for(store: Store) -> None:
    store.put_many([MEASUREMENT, FAILURE])
    missing = replace(KEY, task="never measured")
    found = store.get_many([FAILURE.key, missing, KEY])
    assert list(found.items()) == [(FAILURE.key, FAILURE), (KEY, MEASUREMENT)]


def test_summary_counts_by_machine_and_runtime(store: Store) -> None:
    other = replace(KEY, hardware="another machine", threads=8)
    store.put_many([MEASUREMENT, FAILURE, replace(MEASUREMENT, key=other)])
    elsewhere, here = store.summary()
    assert (elsewhere.hardware, elsewhere.threads, elsewhere.measurements) == ("another machine", 8, 1)
    assert (here.hardware, here.runtime, here.backend, here.threads) == (
        "machine",
        "runtime 1",
        "cpu/host",
        1,
    )
    assert (here.tasks, here.variants, here.measurements, here.failures) == (1, 2, 2, 1)
    assert (here.oldest, here.newest) == (1000.5, 2000.0)
    assert 0 < here.data_bytes < store.size_bytes


def test_summary_of_an_empty_store(store: Store) -> None:
    assert store.summary() == ()


def test_prune_deletes_what_meets_all_conditions(store: Store) -> None:
    other = replace(MEASUREMENT, key=replace(KEY, hardware="other"))
    stale = replace(MEASUREMENT, key=replace(KEY, runtime="runtime 0"))
    store.put_many([MEASUREMENT, FAILURE, other, stale])
    assert store.prune(created_before=1500.0, hardware_other_than="machine") == 1
    assert store.prune(runtime_other_than="runtime 1") == 1
    assert store.prune(created_before=1500.0) == 1
    assert list(store.get_many([KEY, FAILURE.key, other.key, stale.key])) == [FAILURE.key]
    with pytest.raises(ValueError, match="condition"):
        store.prune()


# Files.


def test_a_store_is_created_with_its_folders_and_found_again(path: Path) -> None:
    with Store.open(path) as store:
        assert store.persistent
        store.put(MEASUREMENT)
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    with Store.open(path) as store:
        assert store.get(KEY) == MEASUREMENT


def test_pruning_shrinks_the_file(path: Path) -> None:
    with Store.open(path) as store:
        store.put_many(replace(MEASUREMENT, key=replace(KEY, task=str(i)), samples=(1.0,) * 500) for i in range(200))
    before = path.stat().st_size
    with Store.open(path) as store:
        assert store.prune(created_before=5000.0) == 200
    assert path.stat().st_size < before / 10


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
    expected = _writer_measurement
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
            assert all(store.get(expected(i).key) == expected(i) for i in range(committed[-1] + 1))
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


# Files that are not what they should be.


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
        connection.execute(f"PRAGMA application_id = {store_schema.APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {len(store_schema.MIGRATIONS)}")


def _filled(path: Path) -> None:
    with Store.open(path) as store:
        store.put_many(_writer_measurement(i) for i in range(50))


def _newer(path: Path) -> None:
    with Store.open(path):
        pass
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 99")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: path.write_bytes(b"\x7fELF" + bytes(5000)), "not a Sartor tuning database"),
        (lambda path: path.write_text("x"), "not a Sartor tuning database"),
        (_other_database, "not a Sartor tuning database"),
        (_truncated, "is damaged"),
        (_overwritten, "is damaged"),
        (_newer, "version 99"),
        (Path.mkdir, "is a folder"),
    ],
    ids=["binary", "text", "other", "truncated", "overwritten", "newer", "folder"],
)
@pytest.mark.parametrize("memory_fallback", [False, True])
def test_files_that_cannot_be_used_are_refused_and_left_as_they_are(
    tmp_path: Path, make: object, message: str, memory_fallback: bool
) -> None:
    path = tmp_path / "tuning.db"
    assert callable(make)
    make(path)
    before = path.read_bytes() if path.is_file() else None
    with pytest.raises(UsageError, match=message) as caught:
        Store.open(path, memory_fallback=memory_fallback)
    assert not isinstance(caught.value, StoreUnavailableError)
    assert str(path) in str(caught.value)
    assert "--tuning-db" in str(caught.value)
    assert (path.read_bytes() if path.is_file() else None) == before


def test_a_store_without_its_table_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "tuning.db"
    _without_table(path)
    with Store.open(path) as store, pytest.raises(UsageError, match=r"damaged \(no such table"):
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


# Older versions.


@pytest.mark.parametrize("version", range(1, len(store_schema.MIGRATIONS) + 1))
def test_databases_of_every_version_are_read(path: Path, version: int) -> None:
    path.parent.mkdir(parents=True)
    script = (HERE / "data" / f"store_v{version}.sql").read_text(encoding="utf-8")
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(script)
    with Store.open(path) as store:
        assert store.get(KEY) == MEASUREMENT
        assert store.get(FAILURE.key) == FAILURE
        store.put(replace(FAILURE, message="again"))


def test_an_older_database_is_brought_up_to_date(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Store.open(path) as store:
        store.put(MEASUREMENT)
    step = ("ALTER TABLE measurements ADD COLUMN note TEXT", "UPDATE measurements SET note = 'migrated'")
    monkeypatch.setattr(store_schema, "MIGRATIONS", (*store_schema.MIGRATIONS, step))
    with Store.open(path) as store:
        assert store.get(KEY) == MEASUREMENT
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT note FROM measurements").fetchall() == [("migrated",)]
        assert connection.execute("PRAGMA user_version").fetchone() == (len(store_schema.MIGRATIONS),)


def test_a_migration_that_fails_changes_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Store.open(path) as store:
        store.put(MEASUREMENT)
    with monkeypatch.context() as patch:
        step = ("ALTER TABLE measurements ADD COLUMN note TEXT", "not a statement")
        patch.setattr(store_schema, "MIGRATIONS", (*store_schema.MIGRATIONS, step))
        with pytest.raises(UsageError, match="damaged"):
            Store.open(path)
    with Store.open(path) as store:
        assert store.get(KEY) == MEASUREMENT


# Places that cannot be written.


def test_a_locked_store_says_so(path: Path) -> None:
    with Store.open(path, busy_timeout=0.05) as store, closing(sqlite3.connect(path)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailableError, match="locked by another process"):
            store.put(MEASUREMENT)
        with pytest.raises(StoreUnavailableError, match="locked by another process"):
            Store.open(path, busy_timeout=0.05)
        other.rollback()
        store.put(MEASUREMENT)
        assert store.get(KEY) == MEASUREMENT


def test_a_full_disk_says_so_and_keeps_what_was_there(path: Path) -> None:
    with Store.open(path) as store:
        store.put(MEASUREMENT)
        store._connection.execute("PRAGMA max_page_count = 4")
        with pytest.raises(StoreUnavailableError, match="free some space"):
            store.put_many(_writer_measurement(i) for i in range(100))
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
def test_a_read_only_store_is_an_error_or_on_demand_a_copy_in_memory(read_only: Path) -> None:
    with pytest.raises(StoreUnavailableError, match="--tuning-db"):
        Store.open(read_only)
    with Store.open(read_only, memory_fallback=True) as store:
        assert not store.persistent
        assert store.get(KEY) == MEASUREMENT
        store.put(FAILURE)
        assert store.get(FAILURE.key) == FAILURE
    with pytest.raises(StoreUnavailableError):
        Store.open(read_only.parent / "new.db")
    with Store.open(read_only.parent / "new.db", memory_fallback=True) as store:
        store.put(MEASUREMENT)
        assert not store.persistent
    assert [file.name for file in read_only.parent.iterdir()] == ["tuning.db"]


def _writer_measurement(index: int) -> Measurement:
    found: Measurement = _writer.measurement(index)
    return found


_spec = importlib.util.spec_from_file_location("store_writer", WRITER)
assert _spec is not None
assert _spec.loader is not None
_writer = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_writer)
