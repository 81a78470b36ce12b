"""``sartor db``: what is shown, listed and contributed, and how a database is followed."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from sartor.cli.database.follow import follow
from sartor.codegen.ir.target import Target
from sartor.errors import UsageError
from sartor.tuning.records.measurement import Measurement, MeasurementKey, Status, runtime_key
from sartor.tuning.search.shipped.times import read
from sartor.tuning.store.store import Store
from tests.plugin.calling import assert_refused, call, parsed
from tests.tuning.search.searched_tasks import facts
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


COUNT = 30


@pytest.fixture
def contribute_database(tmp_path: Path) -> Path:
    """Times of one kind of layer: of one thread, of two, and one that is far slower than the fastest."""
    path = tmp_path / "tuning.db"
    with Store.open_to_write(path) as store:
        key = MeasurementKey("a", "", "s", store.hardware, 1, runtime_key(), Target.create("cpu").key)
        for number in range(COUNT):
            variant = f"cpu:f32/conv2d.direct{{vectors={number + 1}}}"
            seconds = 1.0 if number == COUNT - 1 else 1e-3 * (1 + number / COUNT)
            one = Measurement(replace(key, variant=variant), Status.OK, (seconds,), facts=facts(64, 14))
            store.put_many([one, replace(one, key=replace(one.key, threads=2))])
    return path


def test_what_is_contributed_are_times_near_the_best(contribute_database: Path, tmp_path: Path) -> None:
    file = tmp_path / "times.json.gz"
    told = parsed(call("sartor", "db", "contribute", file, "--tuning-db", contribute_database, "--json"))
    assert (told["times"], told["kinds"], told["threads"]) == (COUNT - 1, 1, 1)
    assert told["size_bytes"] == file.stat().st_size
    samples = read(file)
    assert {sample.facts for sample in samples} == {facts(64, 14)}
    assert min(sample.seconds for sample in samples) == pytest.approx(1e-3)
    again = call("sartor", "db", "contribute", file, "--tuning-db", contribute_database, "--threads", "2")
    assert f"{COUNT - 1} times of 1 kinds of layers" in again.stdout
    assert "threads: 2" in again.stdout


def test_other_files_stay_and_few_times_are_no_contribution(contribute_database: Path, tmp_path: Path) -> None:
    other = tmp_path / "notes.txt"
    other.write_text("mine")
    assert_refused(
        call("sartor", "db", "contribute", other, "--tuning-db", contribute_database), 2, "no earlier contribution"
    )
    assert other.read_text() == "mine"
    assert_refused(
        call("sartor", "db", "contribute", contribute_database, "--tuning-db", contribute_database),
        2,
        "the tuning database",
    )
    few = call(
        "sartor", "db", "contribute", tmp_path / "few.json.gz", "--tuning-db", contribute_database, "--threads", "3"
    )
    assert_refused(few, 2, "has 0 times")


def _measurement(variant: str, status: Status = Status.OK) -> Measurement:
    key = MeasurementKey("0123456789abcdef", variant, "source", "machine", 1, "versions", "cpu:host/0")
    return Measurement(key, status, (2e-3,), (5e-3,)) if status is Status.OK else Measurement(key, status)


def test_what_is_measured_meanwhile_is_printed_once(tmp_path: Path) -> None:
    path, said = tmp_path / "tuning.db", list[str]()
    batches = [[("new", Status.OK)], [], [("\x1b[2Jbad", Status.CRASHED)], []]
    with Store.open_to_write(path) as store:
        store.put(_measurement("old"))

        def wait(_: float) -> None:
            store.put_many([_measurement(*each) for each in batches.pop(0)])

        follow(path, said.append, wait, looks=4)
    assert [line.split("  ", 1)[1].split() for line in said] == [
        ["0123456789abcdef", "2.000", "ms,", "2.50", "times", "stock", "new"],
        ["0123456789abcdef", "crashed", "\\x1b[2Jbad"],
    ]


def test_clocks_that_are_ahead_or_behind_hide_nothing(tmp_path: Path) -> None:
    path, said, now = tmp_path / "tuning.db", list[str](), time.time()
    batches = [[("ahead", now + 3600)], [("new", now), ("behind", now - 5)], [("new", now + 1)], []]
    with Store.open_to_write(path) as store:
        store.put(replace(_measurement("imported"), created=now + 3600))

        def wait(_: float) -> None:
            store.put_many([replace(_measurement(name), created=created) for name, created in batches.pop(0)])

        follow(path, said.append, wait, looks=4)
    assert [line.split()[-1] for line in said] == ["ahead", "behind", "new", "new"]


def test_a_copy_cannot_be_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Store, "open_to_read", lambda _: Store.in_memory())
    with pytest.raises(UsageError, match="cannot be followed"):
        follow(tmp_path / "tuning.db", looks=1)
