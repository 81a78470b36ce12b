"""Merging: of two measurements the newer, all or nothing, and nothing believed."""

from __future__ import annotations

import itertools
import os
import shutil
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from sartor.errors import UsageError
from sartor.tuning.records.measurement import Measurement
from sartor.tuning.store import merge
from sartor.tuning.store.export import write_export
from sartor.tuning.store.merge import Merged
from sartor.tuning.store.sqlite import schema
from sartor.tuning.store.sqlite.errors import NewerStoreError, StoreUnavailableError
from sartor.tuning.store.sqlite.rows import to_row
from sartor.tuning.store.store import Store
from tests.tuning.store.store_samples import FAILURE, KEY, MEASUREMENT, keyed
from tests.tuning.store.store_writer import measurement

OLDER = replace(MEASUREMENT, samples=(7.0,), created=MEASUREMENT.created - 1)
NEWER = replace(MEASUREMENT, samples=(9.0,), created=MEASUREMENT.created + 1)
ELSEWHERE = keyed(MEASUREMENT, hardware="another machine")

Save = Callable[..., Path]


def database(path: Path, *measurements: Measurement) -> Path:
    with Store.open_to_write(path) as store:
        store.put_many(measurements)
    return path


def export(path: Path, *measurements: Measurement) -> Path:
    with path.open("w") as file:
        write_export(file, measurements)
    return path


@pytest.fixture(params=[database, export])
def save(request: pytest.FixtureRequest) -> Save:
    saved: Save = request.param
    return saved


def content(store: Store) -> list[Measurement]:
    return list(store.measurements())


def counts(merged: Merged) -> tuple[int, int, int, int]:
    return merged.added, merged.replaced, merged.unchanged, merged.skipped


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.open_to_write(tmp_path / "store.db")


def test_the_newer_measurement_of_a_key_wins(store: Store, save: Save, tmp_path: Path) -> None:
    store.put_many([MEASUREMENT, FAILURE])
    (older,) = store.merge([save(tmp_path / "older", OLDER, ELSEWHERE)])
    assert counts(older) == (1, 0, 1, 0)
    assert store.get(KEY) == MEASUREMENT
    (newer,) = store.merge([save(tmp_path / "newer", NEWER)])
    assert counts(newer) == (0, 1, 0, 0)
    assert [store.get(each.key) for each in (NEWER, FAILURE, ELSEWHERE)] == [NEWER, FAILURE, ELSEWHERE]


def test_merging_again_changes_nothing(store: Store, save: Save, tmp_path: Path) -> None:
    path = save(tmp_path / "source", *map(measurement, range(20)))
    store.put(MEASUREMENT)
    assert counts(store.merge([path])[0]) == (20, 0, 0, 0)
    before = content(store)
    assert [counts(each) for each in store.merge([path, path])] == [(0, 0, 20, 0)] * 2
    assert content(store) == before


def test_the_order_of_files_does_not_matter(save: Save, tmp_path: Path) -> None:
    rows = [(MEASUREMENT, ELSEWHERE), (NEWER, measurement(1)), (OLDER, FAILURE)]
    files = [save(tmp_path / f"source{index}", *row) for index, row in enumerate(rows)]
    results = []
    for order in itertools.permutations(files):
        with Store.in_memory() as store:
            store.merge(order)
            results.append(content(store))
    assert all(result == results[0] for result in results)
    assert set(results[0]) == {NEWER, ELSEWHERE, FAILURE, measurement(1)}


def test_a_database_merged_into_itself_stays(store: Store, tmp_path: Path) -> None:
    store.put_many([MEASUREMENT, FAILURE])
    (merged,) = store.merge([tmp_path / "store.db"])
    assert counts(merged) == (0, 0, 2, 0)


def test_what_another_process_has_just_written_is_seen(store: Store, tmp_path: Path) -> None:
    with Store.open_to_write(tmp_path / "source.db") as source:
        source.put(MEASUREMENT)
        assert counts(store.merge([tmp_path / "source.db"])[0]) == (1, 0, 0, 0)


def test_a_file_that_is_refused_undoes_those_before(store: Store, save: Save, tmp_path: Path) -> None:
    good = save(tmp_path / "good", *map(measurement, range(20)))
    (tmp_path / "bad").write_bytes(b"\x7fELF")
    with pytest.raises(UsageError, match="bad' is neither"):
        store.merge([good, tmp_path / "bad"])
    assert content(store) == []


def test_ctrl_c_undoes_everything(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good = export(tmp_path / "good", *map(measurement, range(20)))

    def interrupted(each: Measurement) -> tuple[object, ...]:
        if each == measurement(15):
            raise KeyboardInterrupt
        return to_row(each)

    monkeypatch.setattr("sartor.tuning.store.merge.to_row", interrupted)
    with pytest.raises(KeyboardInterrupt):
        store.merge([good])
    assert content(store) == []
    store.put(MEASUREMENT)
    assert content(store) == [MEASUREMENT]


def test_a_full_disk_undoes_everything(store: Store, save: Save, tmp_path: Path) -> None:
    store.put(MEASUREMENT)
    store._connection.execute("PRAGMA max_page_count = 5")
    with pytest.raises(StoreUnavailableError, match=r"store\.db does not fit"):
        store.merge([save(tmp_path / "source", *map(measurement, range(100)))])
    assert content(store) == [MEASUREMENT]


def test_a_measurement_beside_other_programs_replaces_no_undisturbed_one(store: Store, tmp_path: Path) -> None:
    disturbed = replace(MEASUREMENT, created=MEASUREMENT.created + 1, foreign_load=0.5)
    store.merge([database(tmp_path / "disturbed.db", disturbed)])
    assert content(store) == [disturbed]
    store.merge([database(tmp_path / "quiet.db", MEASUREMENT), tmp_path / "disturbed.db"])
    assert content(store) == [MEASUREMENT]


def test_the_source_is_left_as_it_is(store: Store, tmp_path: Path) -> None:
    path = database(tmp_path / "source.db", MEASUREMENT)
    before = path.read_bytes()
    path.chmod(0o444)
    store.merge([path])
    assert path.read_bytes() == before


@pytest.mark.parametrize("version", range(1, len(schema.MIGRATIONS) + 1))
def test_databases_of_every_version_are_merged(store: Store, tmp_path: Path, version: int) -> None:
    script = (Path(__file__).parent / "data" / f"store_v{version}.sql").read_text(encoding="utf-8")
    with closing(sqlite3.connect(tmp_path / "old.db")) as connection:
        connection.executescript(script)
    store.merge([tmp_path / "old.db"])
    assert content(store) == [MEASUREMENT, FAILURE]


def test_an_older_schema_is_brought_up_to_date(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = database(tmp_path / "old.db", MEASUREMENT)
    step = ("ALTER TABLE measurements ADD COLUMN note TEXT",)
    monkeypatch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, step))
    with Store.in_memory() as store:
        store.merge([path])
        assert content(store) == [MEASUREMENT]


def _altered(*statements: str) -> Callable[[Path], None]:
    def alter(path: Path) -> None:
        database(path, MEASUREMENT)
        with closing(sqlite3.connect(path)) as connection:
            for statement in statements:
                connection.execute(statement)
            connection.commit()

    return alter


def _rebuilt(create: str) -> Callable[[Path], None]:
    return _altered("DROP TABLE measurements", create)


def _truncated(path: Path) -> None:
    database(path, *map(measurement, range(50)))
    os.truncate(path, path.stat().st_size // 2 + 100)


def _fake(path: Path) -> None:
    path.write_bytes(b"SQLite format 3\0" + bytes(5000))


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (_altered("PRAGMA user_version = 99"), "version 99, this Sartor knows versions up to"),
        (_altered("PRAGMA application_id = 1"), "is neither a tuning database nor"),
        (_altered("CREATE VIEW extra AS SELECT * FROM measurements"), "is neither a tuning database nor"),
        (_altered("CREATE TABLE extra (x)"), "is neither a tuning database nor"),
        (
            _altered("CREATE TRIGGER extra AFTER INSERT ON measurements BEGIN DELETE FROM measurements; END"),
            "is neither a tuning database nor",
        ),
        (_rebuilt("CREATE VIEW measurements AS SELECT 1 AS task"), "is neither a tuning database nor"),
        (_rebuilt("CREATE TABLE measurements (task, variant AS (zeroblob(1e9)))"), "is neither a tuning database nor"),
        (_rebuilt("CREATE TABLE measurements (task)"), "is damaged (no such column"),
        (_altered("DROP TABLE measurements"), "is neither a tuning database nor"),
        (_altered("UPDATE measurements SET message = zeroblob(8000000)"), "is damaged (string or blob too big"),
        (_truncated, "is damaged"),
        (_fake, "is neither a tuning database nor"),
        (Path.mkdir, "is not a file"),
        (Path.touch, "is neither a tuning database nor"),
        (lambda path: None, "is not there"),
    ],
)
def test_files_that_cannot_be_used_are_refused(
    store: Store, tmp_path: Path, make: Callable[[Path], object], said: str
) -> None:
    make(tmp_path / "source")
    with pytest.raises(UsageError) as caught:
        store.merge([tmp_path / "source"])
    assert said in str(caught.value)
    assert "source" in str(caught.value)
    assert content(store) == []


def test_a_newer_database_is_told_apart(store: Store, tmp_path: Path) -> None:
    _altered("PRAGMA user_version = 99")(tmp_path / "source")
    with pytest.raises(NewerStoreError, match="update Sartor"):
        store.merge([tmp_path / "source"])


def test_files_have_a_largest_size(store: Store, save: Save, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = save(tmp_path / "source", MEASUREMENT)
    monkeypatch.setattr(merge, "LARGEST_FILE", path.stat().st_size - 1)
    with pytest.raises(UsageError, match="is larger than"):
        store.merge([path])


@pytest.mark.parametrize(
    "change",
    [
        "status = 'splendid'",
        "samples = x'00'",
        "samples = 'text'",
        "samples = x''",
        "samples = x'000000000000f07f'",
        "samples = x'000000000000f87f'",
        "error = -1",
        "error = 'text'",
        "threads = 0",
        "threads = 'one'",
        "task = ''",
        "task = x'ff'",
        "task = CAST(x'ff' AS TEXT)",
        "message = x'07'",
        "created = 'now'",
        "created = 1e18",
        "packed_bytes = -1",
    ],
)
def test_rows_that_make_no_sense_are_skipped(store: Store, tmp_path: Path, change: str) -> None:
    path = database(tmp_path / "source.db", MEASUREMENT, FAILURE)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"UPDATE measurements SET {change} WHERE status = 'ok'")
        connection.commit()
    (merged,) = store.merge([path])
    assert counts(merged) == (1, 0, 0, 1)
    assert merged.first_skipped is not None
    assert merged.first_skipped.where in ("row 1", "row 2")
    assert content(store) == [FAILURE]


def test_a_file_without_a_single_measurement_is_refused(store: Store, tmp_path: Path) -> None:
    path = export(tmp_path / "source")
    assert counts(store.merge([path])[0]) == (0, 0, 0, 0)
    with path.open("a") as file:
        file.write("{}\n{}\n")
    with pytest.raises(UsageError, match="holds no measurement: line 2 is none"):
        store.merge([path])


def test_a_measurement_of_the_future_cannot_win_for_ever(store: Store, save: Save, tmp_path: Path) -> None:
    store.put(MEASUREMENT)
    forged = replace(MEASUREMENT, samples=(1e-9,), created=time.time() + 1e6)
    (merged,) = store.merge([save(tmp_path / "source", forged, FAILURE)])
    assert counts(merged) == (1, 0, 0, 1)
    assert store.get(KEY) == MEASUREMENT


def test_a_copy_with_its_log_beside_it_is_whole(store: Store, tmp_path: Path) -> None:
    with Store.open_to_write(tmp_path / "source.db") as source:
        source.put_many(map(measurement, range(20)))
        copied = tmp_path / "copied"
        copied.mkdir()
        for name in ("source.db", "source.db-wal"):
            shutil.copy(tmp_path / name, copied / name)
    assert counts(store.merge([copied / "source.db"])[0]) == (20, 0, 0, 0)
