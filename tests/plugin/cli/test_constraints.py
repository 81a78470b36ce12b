"""Limits and objectives as the user of the command line meets them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.importing import ModelFile
from tests.plugin.calling import Result, assert_refused, call, parsed

MODEL = "residual"
LAYERS = 2


@dataclass(frozen=True)
class Free:
    """What compiling without constraints gave, and the database it filled."""

    database: Path
    summary: dict[str, Any]


@pytest.fixture(scope="module")
def free(model_file: ModelFile, tmp_path_factory: pytest.TempPathFactory) -> Free:
    folder = tmp_path_factory.mktemp("constraints")
    options = [*_options(folder / "t.db"), "--json"]
    return Free(folder / "t.db", parsed(call("compile-to-vmfb", model_file(MODEL), "-o", folder / "n.vmfb", *options)))


def _options(database: Path) -> list[object]:
    return ["--tuning-db", database, "--threads", 1]


@pytest.fixture
def compile_(free: Free, model_file: ModelFile, tmp_path: Path) -> Callable[..., Result]:
    """Compile to a fresh folder."""

    def run(*options: object) -> Result:
        output = tmp_path / "out" / "net.vmfb"
        output.parent.mkdir(exist_ok=True)
        output.unlink(missing_ok=True)
        return call("compile-to-vmfb", model_file(MODEL), "-o", output, *_options(free.database), *options)

    return run


def test_the_smallest_feasible_limit_is_met_and_one_byte_less_is_not(
    compile_: Callable[..., Result], tmp_path: Path
) -> None:
    refused = compile_("--memory-limit", "1B")
    assert_refused(refused, 5, "the memory limit of 1 B", "allow that much")
    named = re.search(r"at least (\d+) B", refused.stderr)
    assert named is not None
    least = int(named[1])
    assert_refused(compile_("--memory-limit", f"{least - 1}B"), 5, f"needs at least {least} B")
    assert list((tmp_path / "out").iterdir()) == []
    summary = parsed(compile_("--memory-limit", f"{least}B", "--json"))
    assert summary["memory_bytes"] <= least
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["net.vmfb"]


def test_a_limit_far_above_forbids_nothing(compile_: Callable[..., Result]) -> None:
    limited = parsed(compile_("--memory-limit", "1 GiB", "--json"))
    # Whether that is a split plan, the last measurement says.
    assert sum(limited["routines"].values()) in (0, LAYERS)
    assert 0 < limited["memory_bytes"] < 2**20


def test_least_memory_needs_no_more_than_least_time(free: Free, compile_: Callable[..., Result]) -> None:
    small = parsed(compile_("--objective", "memory", "--json"))
    assert small["memory_bytes"] <= free.summary["memory_bytes"]
    assert (free.summary["objective"], small["objective"]) == ("latency", "memory")
    assert small["relative_error"] < 1e-4


@pytest.mark.skipif(not hasattr(os, "posix_fadvise"), reason="files cannot be dropped from memory here")
def test_the_first_inference_is_timed_where_it_counts(free: Free, compile_: Callable[..., Result]) -> None:
    assert parsed(compile_("--objective", "cold", "--json"))["first_ms"] > 0
    assert free.summary["first_ms"] is None


def test_the_front_is_sorted_and_nothing_on_it_dominates(compile_: Callable[..., Result]) -> None:
    front = parsed(compile_("--pareto", "latency,memory", "--json"))["pareto"]
    points = [(each["latency_ms"], each["memory_bytes"]) for each in front["points"]]
    assert points == sorted(points)
    assert [memory for _, memory in points] == sorted((memory for _, memory in points), reverse=True)
    assert (front["first"], front["second"]) == ("latency", "memory")
    assert len({sum(each["routines"].values()) for each in front["points"]}) == 1


def test_an_error_that_nothing_keeps_names_the_nearest(compile_: Callable[..., Result]) -> None:
    refused = compile_("--max-error", "1e-12")
    assert_refused(refused, 5, "the error limit of 1e-12 cannot be met", "allow that much", "the best found so far")
    named = re.search(r"at least (\S+);", refused.stderr)
    assert named is not None
    assert parsed(compile_("--max-error", named[1], "--json"))["error"] <= float(named[1])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--memory-limit", "256x"], "--memory-limit '256x'"),
        (["--memory-limit", "-1MiB"], "'-1MiB'"),
        (["--memory-limit", "1MB", "--selector", "greedy"], "choose auto or ilp"),
        (["--objective", "memory", "--selector", "dprs"], "choose auto or ilp"),
        (["--pareto", "latency"], "--pareto is 'latency', expected two different ones"),
        (["--pareto", "latency,latency"], "two different ones"),
        (["--pareto", "latency,beauty"], "latency, cold, memory, error"),
        (["--plan", "p.json", "--memory-limit", "1MB"], "--memory-limit"),
    ],
)
def test_nonsense_is_refused_before_any_work(
    model_file: ModelFile, tmp_path: Path, options: list[str], said: str
) -> None:
    result = call("compile-to-vmfb", model_file(MODEL), "-o", tmp_path / "net.vmfb", *options, folder=tmp_path)
    assert_refused(result, 2, said)
    assert list(tmp_path.iterdir()) == []


_COMPILE = """
import hashlib, json, sys
from pathlib import Path
import sartor
from sartor import CompileConfig, Quantity
from sartor.tuning.selection.problem.pin import Pin
model, output, database, jobs = sys.argv[1:]
config = CompileConfig(
    threads=1, jobs=int(jobs), database=Path(database), memory_limit=2**20,
    pareto=(Quantity.LATENCY, Quantity.MEMORY), pins=(Pin("*", "*"),),
)
made = sartor.compile(model, config, output=output)
front = [(point.plan.to_json(), dict(point.needed)) for point in made.pareto.points]
print(json.dumps([hashlib.sha256(made.path.read_bytes()).hexdigest(), made.plan.to_json(), front]))
"""


def test_the_same_store_gives_the_same_plan(free: Free, model_file: ModelFile, tmp_path: Path) -> None:
    """Whatever the hash seed and the number of workers: the same module to the last byte, and the same front.

    What the first run measures for its limit and its front, the second finds in the store. The pin leaves out the
    unsplit model: where IREE packs weights itself, it leaves what pads them to chance.
    """

    def run(seed: int, jobs: int) -> object:
        names = [model_file(MODEL), tmp_path / f"{seed}.vmfb", free.database, jobs]
        done = subprocess.run(
            [sys.executable, "-c", _COMPILE, *map(str, names)],
            env=os.environ | {"PYTHONHASHSEED": str(seed)},
            capture_output=True,
            text=True,
            check=True,
        )
        return json.loads(done.stdout.splitlines()[-1])

    assert run(1, 1) == run(2, 2)
