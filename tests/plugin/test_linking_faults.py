"""Compilations of plans that fail at their end, in the worker or at the files: what is said, and what is left."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from sartor.config import CompileConfig
from sartor.costing.candidates import find_candidates
from sartor.frontend.imported_model import ImportedModel
from sartor.planning.guessed_recipe import guessed_recipe
from tests.plugin.calling import Result, call, program
from tests.plugin.full_disk import run_on_small_disk

MODEL = "residual"
# What runs out first is LLVM, or a container of the C++ library.
_ALLOCATING = "(LLVM ERROR|terminate called after throwing an instance of '(std::|St9)bad_alloc')"


@dataclass(frozen=True)
class Replay:
    """A compilation of a plan; the plan is a guess, so that nothing had to be measured for it."""

    model: Path
    plan: Path
    folder: Path

    @property
    def output(self) -> Path:
        return self.folder / "model.vmfb"

    def run(self, *options: object) -> Result:
        return call("compile-to-vmfb", self.model, "-o", self.output, "--plan", self.plan, *options)


@pytest.fixture(scope="module")
def plan(imported_of: Callable[[str], ImportedModel], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A plan of the model, guessed."""
    imported, policy = imported_of(MODEL), CompileConfig(threads=1).planning
    recipe = guessed_recipe(imported, find_candidates(imported, policy).variants, policy)
    path = tmp_path_factory.mktemp("plan") / "plan.json"
    path.write_text(json.dumps(recipe.plan.to_json()), encoding="utf-8")
    return path


@pytest.fixture
def replay(plan: Path, model_file: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Replay:
    """An earlier module lies where the new one belongs, and temporary files have a folder of their own."""
    (tmp_path / "tmp").mkdir()
    (tmp_path / "out").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    made = Replay(model_file(MODEL), plan, tmp_path / "out")
    made.output.write_bytes(b"earlier")
    return made


def _fail_by(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path, str(Path(__file__).parent)])
    monkeypatch.setattr("sartor.profiling.builder._BUILD", f"linking_faults:{fault}")


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("abort", "error: no plan compiles: the process was killed by SIGABRT; its last output:\nassertion\n"),
        (
            "run_out_of_memory",
            "error: no plan compiles: the process ran out of memory; its last output:\n" + _ALLOCATING,
        ),
        ("be_killed", "error: compiling was disturbed: the process was killed from outside by SIGKILL; try again"),
    ],
    ids=["abort", "out of memory", "killed"],
)
def test_a_worker_that_ends_while_it_links_leaves_nothing(
    replay: Replay, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str, said: str
) -> None:
    _fail_by(fault, monkeypatch)
    weights = replay.folder / "model.irpa"
    weights.write_bytes(b"earlier")
    result = replay.run("--external-weights", weights)
    assert result.returncode == 4
    assert re.search(said, result.stderr), result.stderr
    assert "Python" not in result.stderr
    assert result.stdout == ""
    assert replay.output.read_bytes() == weights.read_bytes() == b"earlier"
    assert sorted(replay.folder.iterdir()) == [weights, replay.output]
    assert list((tmp_path / "tmp").iterdir()) == []


def test_a_worker_that_is_killed_once_while_it_links_is_replaced(
    replay: Replay, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _fail_by("be_killed_once", monkeypatch)
    result = replay.run()
    assert result.returncode == 0, result.stderr
    assert "what it did is tried again" in result.stderr
    assert replay.output.stat().st_size > 4096
    assert list(replay.folder.iterdir()) == [replay.output]
    assert list((tmp_path / "tmp").iterdir()) == []


def test_a_disk_that_holds_a_module_or_its_weights_gets_neither(replay: Replay, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    module, weights = disk / "net.vmfb", disk / "net.irpa"
    command = program(
        "compile-to-vmfb", replay.model, "-o", module, "--external-weights", weights, "--plan", replay.plan
    )
    assert subprocess.run(command, capture_output=True, timeout=300).returncode == 0
    room = module.stat().st_size + weights.stat().st_size // 2
    module.unlink()
    weights.unlink()
    result = run_on_small_disk(disk, room // 1024, command)
    assert result.returncode == 7, result.stderr
    # The weights are written first; where they fit beside nothing, the module does not fit beside them.
    told = {f"error: '{each}' cannot be written: No space left on device" for each in (module, weights)}
    assert result.stderr.splitlines()[-1] in told
    assert result.stdout == ""
    assert list((tmp_path / "tmp").iterdir()) == []
