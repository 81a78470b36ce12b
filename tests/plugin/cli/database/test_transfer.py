"""``sartor db export`` and ``sartor db import``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from sartor.tuning.records.measurement import Measurement
from sartor.tuning.store.store import Store
from tests.plugin.calling import assert_refused, call, parsed, program
from tests.plugin.full_disk import run_on_small_disk
from tests.tuning.store.store_samples import FAILURE, KEY, MEASUREMENT, of_here
from tests.tuning.store.store_writer import measurement

HERE = of_here(MEASUREMENT)


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "tuning.db"
    with Store.open_to_write(path) as store:
        store.put_many([MEASUREMENT, FAILURE, HERE])
    return path


def content(database: Path) -> list[Measurement]:
    with Store.open_to_read(database) as store:
        return list(store.measurements())


def test_what_is_exported_can_be_imported(database: Path, tmp_path: Path) -> None:
    file, other = tmp_path / "all.jsonl", tmp_path / "cache" / "other.db"
    exported = parsed(call("sartor", "db", "export", file, "--tuning-db", database, "--json"))
    assert exported == {"path": str(file), "measurements": 3, "size_bytes": file.stat().st_size}
    (merged,) = parsed(call("sartor", "db", "import", file, "--tuning-db", other, "--json"))["files"]
    assert (merged["path"], merged["added"], merged["skipped"]) == (str(file), 3, 0)
    assert content(other) == content(database)
    again = call("sartor", "db", "import", file, database, "--tuning-db", other)
    assert (again.returncode, again.stderr) == (0, "")
    assert str(file) in again.stdout


def test_the_same_measurements_are_the_same_text(database: Path, tmp_path: Path) -> None:
    files = [tmp_path / "a.jsonl", tmp_path / "b.jsonl"]
    for file in files:
        assert "3 measurements" in call("sartor", "db", "export", file, "--tuning-db", database).stdout
        with Store.open_to_write(database) as store:
            store.put_many([FAILURE, MEASUREMENT])
    assert files[0].read_bytes() == files[1].read_bytes()
    assert len(files[0].read_text().splitlines()) == 4


def test_what_others_measured_can_be_left_out(database: Path, tmp_path: Path) -> None:
    file, other = tmp_path / "here.jsonl", tmp_path / "other.db"
    assert (
        parsed(call("sartor", "db", "export", file, "--here", "--tuning-db", database, "--json"))["measurements"] == 1
    )
    call("sartor", "db", "import", file, "--tuning-db", other)
    assert content(other) == [HERE]


def test_an_earlier_export_is_replaced_and_nothing_else(database: Path, tmp_path: Path) -> None:
    file = tmp_path / "all.jsonl"
    for _ in range(2):
        assert call("sartor", "db", "export", file, "--tuning-db", database).returncode == 0
    before = database.read_bytes()
    assert_refused(call("sartor", "db", "export", database, "--tuning-db", database), 2, "no earlier export")
    assert database.read_bytes() == before
    assert_refused(call("sartor", "db", "export", tmp_path, "--tuning-db", database), 2, "is a directory")
    absent = tmp_path / "absent" / "all.jsonl"
    assert_refused(call("sartor", "db", "export", absent, "--tuning-db", database), 2, "cannot be written")


def test_what_is_skipped_is_said_once(database: Path, tmp_path: Path) -> None:
    file = tmp_path / "all.jsonl"
    call("sartor", "db", "export", file, "--tuning-db", database)
    with file.open("a") as text:
        text.write("<<<<<<<\n{}\n")
    result = call("sartor", "db", "import", file, "--tuning-db", tmp_path / "other.db", "--json")
    (merged,) = parsed(result)["files"]
    assert (merged["added"], merged["skipped"], merged["first_skipped"]["where"]) == (3, 2, "line 5")
    (warning,) = result.stderr.splitlines()
    assert warning.startswith(f"warning: 2 rows of '{file}' are no measurements and were skipped, the first is line 5")


def test_one_bad_file_keeps_all_out(database: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    with Store.open_to_write(other) as store:
        store.put(replace(MEASUREMENT, samples=(1.0,)))
    before = content(other)
    (tmp_path / "bad").write_text('{"format": "sartor measurements", "version": 9}\n')
    for name, said in (("bad", "version 9"), ("absent", "not there"), (".", "not a file")):
        result = call("sartor", "db", "import", database, tmp_path / name, "--tuning-db", other)
        assert_refused(result, 2, said)
    assert content(other) == before


def test_what_cannot_be_imported_leaves_no_database(database: Path, tmp_path: Path) -> None:
    table, other = tmp_path / "all.csv", tmp_path / "cache" / "new.db"
    call("sartor", "db", "export", table, "--csv", "--tuning-db", database)
    for file, said in ((tmp_path / "absent", "not there"), (table, "tables cannot be imported: export without --csv")):
        assert_refused(call("sartor", "db", "import", database, file, "--tuning-db", other), 2, said)
        assert not other.parent.exists()


def test_the_newer_of_two_stays(database: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    newer = replace(MEASUREMENT, samples=(1.0,), created=MEASUREMENT.created + 1)
    with Store.open_to_write(other) as store:
        store.put(newer)
    call("sartor", "db", "import", database, "--tuning-db", other)
    assert len(content(other)) == 3
    (merged,) = parsed(call("sartor", "db", "import", other, "--tuning-db", database, "--json"))["files"]
    assert (merged["added"], merged["replaced"], merged["unchanged"]) == (0, 1, 2)
    with Store.open_to_read(database) as store:
        assert store.get(KEY) == newer


def test_an_export_goes_to_stdout(database: Path, tmp_path: Path) -> None:
    file = tmp_path / "all.jsonl"
    call("sartor", "db", "export", file, "--tuning-db", database)
    result = call("sartor", "db", "export", "-", "--tuning-db", database, folder=tmp_path)
    assert (result.returncode, result.stdout, result.stderr) == (0, file.read_text(), "")
    assert_refused(call("sartor", "db", "export", "-", "--json", "--tuning-db", database), 2, "leave it out")
    assert not (tmp_path / "-").exists()


def test_an_export_replaces_regular_files_only(database: Path, tmp_path: Path) -> None:
    assert_refused(call("sartor", "db", "export", "/dev/null", "--tuning-db", database), 2, "'/dev/null' is a device")
    empty = tmp_path / "empty.db"
    empty.touch()
    hard = tmp_path / "hard"
    hard.hardlink_to(empty)
    for file in (empty, hard):
        result = call("sartor", "db", "export", file, "--tuning-db", empty)
        assert_refused(result, 2, "would overwrite the tuning database")
    assert Path("/dev/null").is_char_device()


@pytest.mark.parametrize(("done", "left"), [("export", ""), ("import", "into.db\n")])
def test_a_disk_without_room_is_said(database: Path, tmp_path: Path, done: str, left: str) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    with Store.open_to_write(database) as store:
        store.put_many(measurement(index) for index in range(200))
    files = {
        "export": (disk / "all.jsonl", "--tuning-db", database),
        "import": (database, "--tuning-db", disk / "into.db"),
    }
    result = run_on_small_disk(disk, 8, program("sartor", "db", done, *files[done]))
    assert result.returncode == 7, result.stderr
    assert str(disk) in result.stderr.splitlines()[-1]
    assert "No space left" in result.stderr or "free some space" in result.stderr
    assert result.stdout == left
