"""Whole compilations where a disk is full, or a folder or file may only be read."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from sartor.tuning.store.sqlite.schema import MIGRATIONS
from sartor.tuning.store.store import Store
from tests.importing import ModelFile
from tests.plugin.calling import program
from tests.plugin.full_disk import run_on_small_disk, run_read_only

MODEL = "residual"
# Opens a database as compilations do, and says how many measurements it has and whether it keeps more.
_OPEN = """
import sys; from pathlib import Path; from sartor.tuning.store.store import Store
with Store.open(Path(sys.argv[1]), goes_on=True) as store:
    print(len(list(store.measurements())), store.persistent)
"""
_NEW = len(MIGRATIONS)
_OLD = Path(__file__).parents[1] / "tuning" / "store" / "data" / "store_v1.sql"


def hurried(model: Path, output: Path, *options: object) -> list[str]:
    return program("compile-to-vmfb", model, "-o", output, "--threads", 1, "--time-budget", 0.01, *options)


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    folder = tmp_path / "disk"
    folder.mkdir()
    return folder


@pytest.mark.parametrize(("option", "name"), [("--save-plan", "plan.json"), ("--dump-dir", "")])
def test_what_finds_no_room_on_its_disk_is_named(
    option: str, name: str, model_file: ModelFile, disk: Path, tmp_path: Path
) -> None:
    output = tmp_path / "out.vmfb"
    output.write_bytes(b"old")
    command = hurried(model_file(MODEL), output, option, disk / name, "--tuning-db", tmp_path / "t.db")
    fill = ["sh", "-c", 'head -c 4096 /dev/zero > "$1"; shift; exec "$@"', "sh", str(disk / "full")]
    result = run_on_small_disk(disk, 4, [*fill, *command])
    assert result.returncode == 7, result.stderr
    assert "Traceback" not in result.stderr
    message = result.stderr.splitlines()[-1]
    assert message.startswith(f"error: '{disk}/")
    assert message.endswith("cannot be written: No space left on device")
    assert result.stdout == "full\n", "half a file is left"
    assert output.read_bytes() == b"old", "the module is published without the other file"
    assert not list(tmp_path.glob(".sartor-part-*"))


def test_a_limit_of_files_is_named_before_the_compiler_ends_at_it(
    model_file: ModelFile, disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(disk))
    command = hurried(model_file(MODEL), tmp_path / "out.vmfb", "--tuning-db", tmp_path / "t.db")
    limited = ["sh", "-c", 'ulimit -f 8; exec "$@"', "sh", *command]
    result = subprocess.run(limited, capture_output=True, text=True, timeout=300)
    assert result.returncode == 7, result.stderr
    assert "this process may write files of" in result.stderr.splitlines()[-1]
    assert list(disk.iterdir()) == [], "temporary files are left"


def test_a_cache_folder_that_may_only_be_read_costs_the_record_alone(
    model_file: ModelFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    output = tmp_path / "out.vmfb"
    result = run_read_only(cache, hurried(model_file(MODEL), output))
    assert result.returncode == 0, result.stderr
    (warning,) = [line for line in result.stderr.splitlines() if str(cache) in line]
    assert "Read-only file system" in warning
    assert warning.endswith("what is measured now is not kept")
    assert output.exists()
    assert list(cache.iterdir()) == []


def test_a_database_that_may_only_be_read_is_read(model_file: ModelFile, tmp_path: Path) -> None:
    folder = tmp_path / "shared"
    folder.mkdir()
    database = folder / "t.db"
    first, second = (
        hurried(model_file(MODEL), tmp_path / name, "--tuning-db", database) for name in ("first.vmfb", "second.vmfb")
    )
    subprocess.run(first, check=True, capture_output=True)
    before = database.read_bytes()
    result = run_read_only(folder, second)
    assert result.returncode == 0, result.stderr
    assert f"the tuning database {database} cannot be opened" in result.stderr
    assert "it is only read, and what is measured now is not kept" in result.stderr
    assert "profiling plans" not in result.stderr, "how the network ran is known"
    assert (tmp_path / "second.vmfb").exists()
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {"t.db": before}


@pytest.mark.parametrize("kibibytes", [8, 12, 16, 20, 256])
def test_a_disk_that_is_full_amid_a_migration_leaves_a_whole_database(
    kibibytes: int, disk: Path, tmp_path: Path
) -> None:
    """The smallest disk has room for the file only, others for parts of the journal or the log, the last for all."""
    old, after = tmp_path / "old.db", tmp_path / "after.db"
    with closing(sqlite3.connect(old)) as connection:
        connection.executescript(_OLD.read_text(encoding="utf-8"))
    script = """
        cp "$1" "$3" || exit 1
        copy=$2; file=$3; shift 3; "$@"; code=$?
        cp "$file" "$copy"; [ ! -e "$file-journal" ] || cp "$file-journal" "$copy-journal"
        exit $code
    """
    python = [sys.executable, "-c", _OPEN, str(disk / "t.db")]
    result = run_on_small_disk(disk, kibibytes, ["sh", "-c", script, "sh", str(old), str(after), *python[3:], *python])
    assert result.returncode == 0, result.stderr
    count, is_persistent = result.stdout.split()[:2]
    assert count == ("2" if "it is only read" in result.stderr or is_persistent == "True" else "0")
    assert ("not kept" in result.stderr) == (is_persistent == "False")
    with closing(sqlite3.connect(after)) as connection:
        assert connection.execute("PRAGMA quick_check").fetchone() == ("ok",)
        assert connection.execute("SELECT count(*) FROM measurements").fetchone() == (2,)
        (version,) = connection.execute("PRAGMA user_version").fetchone()
    assert version == 1 if kibibytes == 8 else version in (1, _NEW)
    assert is_persistent == str(kibibytes == 256)
    with Store.open(after) as store:
        assert len(list(store.measurements())) == 2
