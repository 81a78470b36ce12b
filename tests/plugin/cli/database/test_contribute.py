"""``sartor db contribute``: times that can become part of the package."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from sartor.codegen.ir.target import Target
from sartor.tuning.records.measurement import Measurement, MeasurementKey, Status, runtime_key
from sartor.tuning.search.shipped.times import read
from sartor.tuning.store.store import Store
from tests.plugin.calling import assert_refused, call, parsed
from tests.tuning.search.searched_tasks import facts

COUNT = 30


@pytest.fixture
def database(tmp_path: Path) -> Path:
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


def test_what_is_contributed_are_times_near_the_best(database: Path, tmp_path: Path) -> None:
    file = tmp_path / "times.json.gz"
    told = parsed(call("sartor", "db", "contribute", file, "--tuning-db", database, "--json"))
    assert (told["times"], told["kinds"], told["threads"]) == (COUNT - 1, 1, 1)
    assert told["size_bytes"] == file.stat().st_size
    samples = read(file)
    assert {sample.facts for sample in samples} == {facts(64, 14)}
    assert min(sample.seconds for sample in samples) == pytest.approx(1e-3)
    again = call("sartor", "db", "contribute", file, "--tuning-db", database, "--threads", "2")
    assert f"{COUNT - 1} times of 1 kinds of layers" in again.stdout
    assert "threads: 2" in again.stdout


def test_other_files_stay_and_few_times_are_no_contribution(database: Path, tmp_path: Path) -> None:
    other = tmp_path / "notes.txt"
    other.write_text("mine")
    assert_refused(call("sartor", "db", "contribute", other, "--tuning-db", database), 2, "no earlier contribution")
    assert other.read_text() == "mine"
    assert_refused(call("sartor", "db", "contribute", database, "--tuning-db", database), 2, "the tuning database")
    few = call("sartor", "db", "contribute", tmp_path / "few.json.gz", "--tuning-db", database, "--threads", "3")
    assert_refused(few, 2, "has 0 times")
