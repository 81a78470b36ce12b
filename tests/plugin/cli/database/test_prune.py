"""``sartor db prune``."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from sartor.tuning.store.store import Store
from tests.plugin.calling import assert_refused, call, parsed
from tests.tuning.store.store_samples import keyed, of_here
from tests.tuning.store.store_writer import measurement

DAY = 86400.0
HERE = of_here(measurement(0))


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """One measurement a day for the last 200 days, the newest here, the others on two other machines."""
    path = tmp_path / "tuning.db"
    now = time.time()
    rows = [
        replace(keyed(measurement(index), hardware=f"machine {index % 2}"), created=now - (index + 0.5) * DAY)
        for index in range(1, 200)
    ]
    with Store.open_to_write(path) as store:
        store.put_many([replace(HERE, created=now), *rows])
    return path


def prune(database: Path, *options: object) -> dict[str, object]:
    pruned: dict[str, object] = parsed(call("sartor", "db", "prune", *options, "--tuning-db", database, "--json"))
    return pruned


def test_a_dry_run_says_exactly_what_would_go(database: Path) -> None:
    before = database.read_bytes()
    options = ["--older-than", "90d", "--max-size", "50KiB"]
    dry = prune(database, *options, "--dry-run")
    assert database.read_bytes() == before
    wet = prune(database, *options)
    assert dry == {**wet, "dry_run": True}
    assert wet["size_bytes"] == database.stat().st_size <= 50 << 10
    assert len(before) == wet["size_bytes_before"]


@pytest.mark.parametrize(
    ("options", "removed"),
    [
        (["--older-than", "90d"], 110),
        (["--older-than", "0s"], 200),
        (["--older-than", "1w"], 193),
        (["--older-than", "100000w"], 0),
        (["--other-machines"], 199),
        (["--other-versions"], 199),
        (["--other-machines", "--older-than", "190d"], 10),
        (["--max-size", "1GiB"], 0),
        (["--status", "ok"], 200),
        (["--status", "timeout", "--status", "crashed"], 0),
        (["--status", "timeout", "--status", "ok", "--older-than", "150d"], 50),
        (["--max-size", "0 B"], 200),
    ],
)
def test_conditions_add_up(database: Path, options: list[str], removed: int) -> None:
    assert prune(database, *options)["removed"] == removed


def test_what_goes_is_told_by_machine(database: Path) -> None:
    rows = prune(database, "--older-than", "150d", "--dry-run")["rows"]
    assert isinstance(rows, list)
    assert [(row["hardware"], row["removed"], row["kept"]) for row in rows] == [
        ("machine 0", 25, 74),
        ("machine 1", 25, 75),
    ]
    shown = call("sartor", "db", "prune", "--older-than", "150d", "--dry-run", "--tuning-db", database).stdout
    assert "50 measurements would be removed" in shown
    assert "machine 0" in shown
    nothing = call("sartor", "db", "prune", "--older-than", "999w", "--tuning-db", database).stdout
    assert ": 0 measurements removed" in nothing


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "say what to delete"),
        (["--dry-run"], "say what to delete"),
        (["--older-than", "90"], "--older-than '90' cannot be read"),
        (["--older-than", "90y"], "'90y'"),
        (["--older-than", "-1d"], "'-1d'"),
        (["--status", "late"], "late"),
        (["--max-size", "100"], "100MiB"),
        (["--max-size", "1e3MiB"], "'1e3MiB'"),
        (["--max-size", "9" * 400 + "GiB"], "--max-size"),
    ],
)
def test_what_makes_no_sense_deletes_nothing(database: Path, options: list[str], said: str) -> None:
    before = database.read_bytes()
    assert_refused(call("sartor", "db", "prune", *options, "--tuning-db", database), 2, said)
    assert database.read_bytes() == before
