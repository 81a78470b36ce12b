"""``sartor db show`` and ``sartor db list``."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from sartor.tuning.store.store import Store
from tests.plugin.calling import assert_refused, call, parsed
from tests.tuning.store.store_samples import FAILURE, MEASUREMENT, keyed, of_here

NOW = time.time()
SLOW = replace(
    keyed(of_here(MEASUREMENT), task="slow", variant="cpu:f32/conv2d.stock"),
    samples=(0.2,),
    baseline_samples=(),
    created=NOW,
)
FAST = replace(
    keyed(of_here(MEASUREMENT), task="slow", variant="cpu:f32/conv2d.tiled{depth=4}"),
    samples=(0.05,),
    baseline_samples=(0.2,),
    created=NOW,
)
QUICK = replace(
    keyed(of_here(MEASUREMENT), task="quick", variant="cpu:f32/pool.stock"), samples=(0.001,), baseline_samples=()
)
BROKEN = replace(of_here(FAILURE), message="bad \x1b[31m news")
ELSEWHERE = keyed(MEASUREMENT, hardware="another machine")


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "tuning.db"
    with Store.open_to_write(path) as store:
        store.put_many([SLOW, FAST, QUICK, BROKEN, ELSEWHERE])
    return path


@pytest.mark.parametrize("command", [[], ["show"], ["--tuning-db"], ["show", "--tuning-db"]])
def test_show_is_what_db_does(database: Path, command: list[str]) -> None:
    shown = parsed(call("sartor", "db", *command, database, "--json"))
    assert (shown["path"], shown["size_bytes"], shown["removed"]) == (str(database), database.stat().st_size, 0)
    assert {row["hardware"]: (row["measurements"], row["used_here"]) for row in shown["rows"]} == {
        "another machine": (1, False),
        SLOW.key.hardware: (4, True),
    }


def test_show_marks_what_is_used_here(database: Path) -> None:
    shown = call("sartor", "db", database).stdout
    assert "another machine" in shown
    assert "threads: 1" in shown
    assert "yes" in shown
    assert "no" in shown


def test_show_still_prunes(database: Path) -> None:
    kept = parsed(call("sartor", "db", database, "--prune-older-than", 1e5, "--json"))
    assert kept["removed"] == 0
    pruned = parsed(call("sartor", "db", database, "--prune-older-than", 1, "--json"))
    assert (pruned["removed"], sum(row["measurements"] for row in pruned["rows"])) == (3, 2)


def test_list_has_the_slowest_tasks_of_this_machine_first(database: Path) -> None:
    listed = parsed(call("sartor", "db", "list", "--tuning-db", database, "--json"))
    slow, quick, failed = listed["tasks"]
    assert (slow["task"], slow["best"], slow["seconds"], slow["stock_seconds"]) == (
        "slow",
        FAST.key.variant,
        pytest.approx(0.05),
        0.2,
    )
    assert (slow["variants"], slow["failures"]) == (2, 0)
    assert (quick["task"], quick["stock_seconds"]) == ("quick", None)
    assert (failed["task"], failed["best"], failed["failures"]) == ("task", None, 1)
    (failure,) = listed["failures"]
    assert (failure["status"], failure["message"]) == ("crashed", BROKEN.message)


@pytest.mark.parametrize(
    ("options", "tasks", "failures"),
    [
        (["*conv2d*"], ["slow", "task"], 1),
        (["*tiled*"], ["slow"], 0),
        (["quick"], ["quick"], 0),
        (["quick", "slow"], ["slow", "quick"], 0),
        (["nothing"], [], 0),
        (["--failures"], [], 1),
        (["*pool*", "--failures"], [], 0),
        (["--all", "task"], ["task", "task"], 1),
    ],
)
def test_list_filters(database: Path, options: list[str], tasks: list[str], failures: int) -> None:
    listed = parsed(call("sartor", "db", "list", *options, "--tuning-db", database, "--json"))
    assert [each["task"] for each in listed["tasks"]] == tasks
    assert len(listed["failures"]) == failures


@pytest.mark.parametrize(("options", "happened"), [(["nothing"], "was measured"), (["*pool*", "--failures"], "failed")])
def test_list_says_that_there_is_nothing(database: Path, options: list[str], happened: str) -> None:
    shown = call("sartor", "db", "list", *options, "--tuning-db", database).stdout
    assert shown == f"nothing like that {happened} on this machine with these versions, --all lists the rest\n"


def test_list_reads_well_and_sends_nothing_to_the_terminal(database: Path) -> None:
    shown = call("sartor", "db", "list", "--tuning-db", database).stdout
    for said in (FAST.key.variant, "50.000", "200.000", "4.00x", "all failed", "crashed", "bad \\x1b[31m news"):
        assert said in shown
    assert "\x1b" not in shown


@pytest.mark.parametrize("command", [[], ["show"], ["list", "--tuning-db"], ["export", "e.jsonl", "--tuning-db"],
                                     ["prune", "--older-than", "1d", "--tuning-db"]])  # fmt: skip
def test_databases_of_no_use_are_refused(tmp_path: Path, command: list[str]) -> None:
    (tmp_path / "foreign.db").write_bytes(b"SQLite format 3\0" + bytes(200))
    cases = (("absent.db", "no tuning database 'absent.db'"), ("foreign.db", "not a Sartor tuning database"))
    for name, said in cases:
        assert_refused(call("sartor", "db", *command, name, folder=tmp_path), 2, said)
    assert [file.name for file in tmp_path.iterdir()] == ["foreign.db"]


def test_a_mistyped_command_is_not_taken_for_a_database(tmp_path: Path) -> None:
    commands = "show, list, export, import, contribute, prune"
    said = f"'merge' is neither a command of 'sartor db', which are {commands}, nor a database"
    assert_refused(call("sartor", "db", "merge", folder=tmp_path), 2, said)


def test_compiling_warns_of_a_database_of_no_use_and_goes_on(tmp_path: Path) -> None:
    """As far as the model, which is none: the database is opened first."""
    (tmp_path / "text.onnx").write_text("this is no model")
    _newer(tmp_path / "newer.db")
    with Store.open_to_write(tmp_path / "elsewhere.db") as store:
        store.put(ELSEWHERE)
    for name, said in (("newer.db", "version 99"), ("elsewhere.db", "other machines or versions only")):
        result = call("compile-to-vmfb", "text.onnx", "-o", "o.vmfb", "--tuning-db", name, folder=tmp_path)
        assert_refused(result, 3, "not an ONNX model")
        (warning,) = [line for line in result.stderr.splitlines() if line.startswith("warning: ")]
        assert said in warning
    for command in (["db", "newer.db"], ["db", "import", "elsewhere.db", "--tuning-db", "newer.db"]):
        assert_refused(call("sartor", *command, folder=tmp_path), 2, "version 99", "update Sartor")


def _newer(path: Path) -> None:
    with Store.open_to_write(path):
        pass
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 99")
