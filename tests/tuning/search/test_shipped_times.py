"""The package's measured times are read where they fit, and noticed where they do not."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sartor.tuning.search import cost_model
from sartor.tuning.search.cost_model import Sample
from sartor.tuning.search.shipped import times
from sartor.tuning.search.shipped.likeness import guide
from sartor.tuning.search.shipped.stored_guide import stored_guide, write_guide
from sartor.tuning.search.shipped.times import shipped_samples, write_samples
from tests.tuning.search.searched_tasks import KERNELS, STOCK, facts, samples, task

ISA = "x86-64-v4"
TASKS = [task(f"{channels}", channels, 14) for channels in (64, 128, 512)]
Change = Callable[[dict[str, Any]], None]


def test_what_was_written_is_read(tmp_path: Path) -> None:
    path = write_samples(samples(*TASKS), ISA, 1, tmp_path)
    found = {
        (shipped_sample.facts, shipped_sample.variant.descriptor): shipped_sample.seconds
        for shipped_sample in shipped_samples(ISA, 1, tmp_path)
    }
    near = {(sample.facts, sample.variant.descriptor): sample.seconds for sample in samples(*TASKS)}
    del_stock = {key: seconds for key, seconds in near.items() if key[1] != STOCK}
    assert found == pytest.approx(del_stock, rel=1e-3)
    assert path.read_bytes() == write_samples(reversed(samples(*TASKS)), ISA, 1, tmp_path).read_bytes()


@pytest.mark.parametrize(
    ("isa", "threads"),
    [(ISA, 1), ("x86-64-v3", 2), ("aarch64", 2)],
)
def test_other_machines_and_fewer_threads_have_none(tmp_path: Path, isa: str, threads: int) -> None:
    write_samples(samples(*TASKS), ISA, 2, tmp_path)
    assert shipped_samples(ISA, 2, tmp_path)
    assert shipped_samples(isa, threads, tmp_path) == ()


def test_times_of_one_thread_serve_several_that_have_none(tmp_path: Path) -> None:
    write_samples(samples(*TASKS), ISA, 1, tmp_path)
    one = shipped_samples(ISA, 1, tmp_path)
    assert one == shipped_samples(ISA, 2, tmp_path) != ()
    write_samples(samples(*TASKS[:1]), ISA, 2, tmp_path)
    assert one == shipped_samples(ISA, 4, tmp_path) != shipped_samples(ISA, 2, tmp_path)


def renamed(data: dict[str, Any]) -> None:
    for _, variants in data["tasks"]:
        for variant in variants:
            variant[0] = variant[0].replace("direct", "of_old")


def without_facts(data: dict[str, Any]) -> None:
    data["tasks"][0][0] = "convolution batch=1"


def without_time(data: dict[str, Any]) -> None:
    data["tasks"][0][1][0][1] = 0.0


def without_tasks(data: dict[str, Any]) -> None:
    del data["tasks"]


def of_another_format(data: dict[str, Any]) -> None:
    data["format"] += 1


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (renamed, "made for other routines"),
        (without_facts, "lacks"),
        (without_time, "took 0"),
        (without_tasks, "damaged"),
        (of_another_format, "another format"),
    ],
)
def test_a_file_that_does_not_fit_is_told_and_not_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, change: Change, said: str
) -> None:
    path = write_samples(samples(*TASKS), ISA, 1, tmp_path)
    data = json.loads(gzip.decompress(path.read_bytes()))
    change(data)
    path.write_bytes(gzip.compress(json.dumps(data).encode()))
    assert shipped_samples(ISA, 1, tmp_path) == ()
    assert said in caplog.text


@pytest.mark.parametrize("keep", [0.0, 0.5, 0.99])
def test_a_file_that_was_cut_off_is_told_and_not_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, keep: float
) -> None:
    path = write_samples(samples(*TASKS), ISA, 1, tmp_path)
    content = path.read_bytes()
    path.write_bytes(content[: int(keep * len(content))])
    assert shipped_samples(ISA, 1, tmp_path) == ()
    assert "damaged" in caplog.text


def test_a_routine_that_is_gone_is_left_out(tmp_path: Path) -> None:
    path = write_samples(samples(*TASKS), ISA, 1, tmp_path)
    data = json.loads(gzip.decompress(path.read_bytes()))
    data["tasks"][0][1][0][0] = "cpu:f32/conv2d.of_old{columns=4}"
    path.write_bytes(gzip.compress(json.dumps(data).encode()))
    assert len(shipped_samples(ISA, 1, tmp_path)) == len(TASKS) * len(KERNELS) - 1


def test_the_packages_own_files_fit_this_version() -> None:
    """If features were changed on purpose, ``python -m benchmarks.selection trees`` trains the models anew."""
    paths = sorted(Path(times.__file__).parent.glob("*.json.gz"))
    assert paths
    for path in paths:
        found = times.read(path)
        assert len({each.facts for each in found}) > 100
        stored, trained = stored_guide(path, found), guide(found)
        assert stored is not None, f"the trees beside {path.name} are of other features or times"
        assert trained is not None
        variants = [each.variant for each in found[::100]]
        seconds = stored.seconds(facts(64, 14), variants)
        assert all(second > 0 for second in seconds)
        assert seconds == pytest.approx(trained.seconds(facts(64, 14), variants), rel=1e-4)


def test_stored_trees_serve_their_own_times_and_features_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_samples(samples(*TASKS), ISA, 1, tmp_path)
    found = times.read(path)
    assert stored_guide(path, found) is None
    model = guide([*found, *found])
    assert model is not None
    written = write_guide(model, path, found)
    stored = stored_guide(path, found)
    variants = [each.variant for each in found]
    assert stored is not None
    assert stored.seconds(facts(64, 14), variants) == model.seconds(facts(64, 14), variants)
    content = written.read_bytes()
    for damaged in (b"", content[:100], content[:-40], b"x" + content):
        written.write_bytes(damaged)
        assert stored_guide(path, found) is None
    written.write_bytes(content)
    other = [Sample(each.facts, each.variant, each.seconds) for each in found]
    monkeypatch.setattr(cost_model, "features", lambda facts, variant: [1.0])
    assert stored_guide(path, other) is None
    monkeypatch.undo()
    write_samples(samples(*TASKS[1:]), ISA, 1, tmp_path)
    assert stored_guide(path, found) is None
