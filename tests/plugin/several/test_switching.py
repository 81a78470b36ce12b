"""One file with a plan for the first inference and one for later ones: which runs when, and what may come between."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import onnx
import pytest

import sartor
from sartor.cli.tables.compile_summary import summary
from sartor.codegen.linking.several.switching import LATER_ENTRY
from sartor.config import CompileConfig
from sartor.costing.candidates import find_candidates
from sartor.errors import CompileError, UsageError
from sartor.frontend.imported_model import ImportedModel
from sartor.planning.guessed_recipe import guessed_recipe
from sartor.planning.recipe import Recipe
from sartor.profiling.builder import Builder as NetBuilder
from sartor.profiling.compilation.bench import Bench
from sartor.profiling.compilation.candidacy import Candidacy
from sartor.profiling.compilation.tuned_network import Tuned
from sartor.profiling.network_runner import NetRunner
from sartor.profiling.profiler import Profiled
from sartor.profiling.refinement import Refined
from sartor.reference.trusted.reference_model import ReferenceModel
from sartor.runtime import module as module_file
from sartor.runtime.driver.program import Program
from sartor.runtime.driver.signature import Array
from sartor.runtime.manifest import SWITCHING_FORMAT, read_manifest
from sartor.runtime.mapping import leases, overlap
from sartor.runtime.mapping.leases import Lease
from sartor.runtime.mapping.reading import Reading
from sartor.runtime.module import Module, check_module
from sartor.runtime.session import Session
from sartor.several import switching
from sartor.several.switching import manifest_of
from sartor.tuning.cost_tables.in_network import InNetworkTimes
from sartor.tuning.cost_tables.tables import Tables
from sartor.tuning.networks.build_job import NetFiles, SplitNetwork
from sartor.tuning.networks.switching_job import SwitchingNetwork, build_switching
from sartor.tuning.selection.problem.cost import Objective
from sartor.tuning.selection.problem.pin import Pin
from tests.emulated_x86 import Stock
from tests.importing import imported_model
from tests.tiny_models import Builder

CONFIG = CompileConfig(threads=1)
KERNEL_BYTES = 16 * 16 * 9 * 4
ACTIVATION_BYTES = 1000


@dataclass(frozen=True)
class Made:
    """A file, what was compiled into it, and the model that it was made of."""

    imported: ImportedModel
    recipes: tuple[Recipe, Recipe]
    files: NetFiles
    counts: tuple[int, int]

    def expected(self, x: Array) -> Array:
        return ReferenceModel(self.imported.path, threads=1)({"x": x})[0]


def write_model(folder: Path) -> Path:
    build = Builder()
    build.op("Relu", "r", build.conv("c", "x", (16, 16)))
    build.op("Relu", "y", build.conv("d", "r", (16, 16)))
    path = folder / "net.onnx"
    onnx.save(build.model([("x", (1, 16, 8, 8))], [("y", (1, 16, 8, 8))]), path)
    return path


def compiled(folder: Path, *, external: bool = False) -> Made:
    """A file whose plans compute the first convolution alike, and the second in two ways."""
    imported = imported_model(write_model(folder))
    variants = find_candidates(imported, CONFIG.planning).variants
    last = imported.graph.layers[-1].name
    first, later = (
        guessed_recipe(imported, variants, replace(CONFIG.planning, pins=(Pin("c", "*direct{*"), Pin(last, routine))))
        for routine in ("*conv2d.stock", "*direct{*")
    )
    config = replace(CONFIG, external_weights=folder / "net.irpa" if external else None)
    files = NetFiles(folder / "net.vmfb", config.external_weights)
    nets = SwitchingNetwork(*(SplitNetwork(each.graph, each.variants, imported.ranges) for each in (first, later)))
    counts = build_switching(nets, imported.weights, CONFIG.target, manifest_of(first, later, imported, config), files)
    return Made(imported, (first, later), files, counts)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return compiled(tmp_path_factory.mktemp("switching"))


def inputs() -> Array:
    return np.random.default_rng(0).standard_normal((1, 16, 8, 8)).astype(np.float32)


@pytest.fixture
def large(made: Made, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A copy of the file, which counts as large."""
    monkeypatch.setattr(module_file, "_SMALL_BYTES", 0)
    return Path(shutil.copy(made.files.module, tmp_path))


def check(found: Array, made: Made) -> None:
    np.testing.assert_allclose(found, made.expected(inputs()), rtol=1e-4, atol=1e-5)


def test_equal_weights_and_code_are_stored_once(made: Made) -> None:
    """Both plans read the first convolution's weights; the second packs those of the other in another way."""
    first, added = made.counts
    assert first >= 2 * KERNEL_BYTES
    assert KERNEL_BYTES <= added < first - KERNEL_BYTES
    manifest = read_manifest(made.files.module)
    assert manifest.format == SWITCHING_FORMAT
    assert manifest.successor is not None
    assert (manifest.successor["entry"], manifest.successor["weight_bytes"]) == (LATER_ENTRY, added)
    assert manifest.plan != manifest.successor["plan"]
    check_module(made.files.module)


@pytest.mark.parametrize("entry", ["main_graph", LATER_ENTRY])
def test_stock_tools_run_both(entry: str, made: Made) -> None:
    check(Stock().run(made.files.module, entry, [inputs()]), made)


def test_the_second_run_is_that_of_later_inferences(made: Made, called: list[str]) -> None:
    with Session(made.files.module, threads=1) as session:
        for _ in range(3):
            check(session.run(None, {"x": inputs()})[0], made)
            # A thread prepares the later plan behind the first run, on a busy machine some time after it.
            session.settle()
    assert called == ["main_graph", LATER_ENTRY, LATER_ENTRY]


def test_runs_that_do_not_wait_switch_too(made: Made, called: list[str]) -> None:
    with Session(made.files.module, threads=2) as session:
        runs = [session.run_async(None, {"x": inputs()}) for _ in range(2)]
        for each in runs:
            check(each.result()[0], made)
    assert [name.removesuffix("$async") for name in called] == ["main_graph", LATER_ENTRY]


def test_runs_on_bound_memory_switch_too(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    prepared: list[str] = []
    prepare = Program.prepare

    def noted(program: Program, function: str, views: Sequence[Any]) -> Callable[[], None]:
        prepared.append(function)
        return prepare(program, function, views)

    monkeypatch.setattr(Program, "prepare", noted)
    with Session(made.files.module, threads=1) as session:
        bound = session.bind({"x": inputs()})
        (result,) = (each.to_host() for each in bound.outputs.values())
        for _ in range(3):
            result[...] = 0
            bound.run()
            check(result, made)
    assert prepared == ["main_graph$bound", f"{LATER_ENTRY}$bound"]


def test_who_has_waited_needs_no_plan_for_the_first_inference(large: Path, made: Made, called: list[str]) -> None:
    with Session(large, threads=1) as session:
        session.settle()
        check(session.run(None, {"x": inputs()})[0], made)
    assert called == [LATER_ENTRY]


def test_the_first_plan_goes_on_until_the_other_was_read(
    large: Path, made: Made, called: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    wait = Reading.wait
    may_go_on = threading.Event()
    monkeypatch.setattr(Reading, "wait", lambda self: (may_go_on.wait(20), wait(self)))
    with Session(large, threads=1) as session:
        for _ in range(3):
            check(session.run(None, {"x": inputs()})[0], made)
        may_go_on.set()
        session.settle()
        check(session.run(None, {"x": inputs()})[0], made)
    assert called == [*["main_graph"] * 3, LATER_ENTRY]


@pytest.mark.parametrize("short", [0, 1])
def test_without_memory_for_both_the_first_goes_on(
    short: int, large: Path, made: Made, called: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overlap, "_FEW", 0)
    monkeypatch.setattr(overlap, "free_bytes", lambda: made.counts[1] + overlap._LEFT_FREE - short)
    with Session(large, threads=1) as session:
        session.settle()
        check(session.run(None, {"x": inputs()})[0], made)
    assert called == ["main_graph" if short else LATER_ENTRY]


def test_weights_beside_the_module_are_shared_too(tmp_path: Path, called: list[str]) -> None:
    beside = compiled(tmp_path, external=True)
    assert beside.files.weights is not None
    assert sum(beside.counts) <= beside.files.weights.stat().st_size < sum(beside.counts) + KERNEL_BYTES
    with Session(beside.files.module, threads=1) as session:
        for _ in range(2):
            check(session.run(None, {"x": inputs()})[0], beside)
    assert called == ["main_graph", LATER_ENTRY]


def test_a_truncated_file_is_refused(large: Path) -> None:
    os.truncate(large, large.stat().st_size - KERNEL_BYTES)
    with pytest.raises(UsageError, match="is damaged"):
        Session(large)


def test_a_file_that_shrinks_before_the_switch_is_reported(large: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "take", lambda handle: Lease.REFUSED)
    monkeypatch.setattr(overlap, "_IDLE_SECONDS", 100.0)
    session = Session(large, threads=1, huge_pages=False)
    session.run(None, {"x": inputs()})
    os.truncate(large, 10)
    with pytest.raises(UsageError, match="was changed while it was open"):
        session.run(None, {"x": inputs()})


_KILLED = """
import sys, time
import numpy as np
from sartor.runtime import module
from sartor.runtime.mapping.overlap import Takeover
from sartor.runtime.session import Session

module._SMALL_BYTES = 0

def halt(takeover):
    print("preparing", flush=True)
    time.sleep(100)

Takeover.prepare = halt
session = Session(sys.argv[1], threads=1)
session.run(None, {"x": np.zeros((1, 16, 8, 8), np.float32)})
time.sleep(100)
"""


def test_a_process_that_is_killed_while_it_switches_leaves_nothing(large: Path, made: Made) -> None:
    content = large.read_bytes()
    process = subprocess.Popen([sys.executable, "-c", _KILLED, large], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "preparing\n"
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert large.read_bytes() == content
    assert [*large.parent.iterdir()] == [large]
    with Session(large, threads=1) as session:
        for _ in range(2):
            check(session.run(None, {"x": inputs()})[0], made)


def test_a_function_that_is_missing_is_named(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Module, "functions", property(lambda module: ["main_graph"]))
    with pytest.raises(UsageError, match=r"exports no function 'main_graph\$later'"):
        Session(made.files.module)


@pytest.fixture
def guessing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans are guessed in place of measured: with the first convolution by one routine, the last by two."""

    def make(found: Candidacy, config: CompileConfig, bench: Bench, folder: Path) -> switching.Made:
        own = bench.directory / config.objective
        own.mkdir()
        builder = NetBuilder(found.imported, bench.pool, own, config.header, bench.progress)
        runner = NetRunner(builder, found.calibration.samples, config.error_budget)
        routine = "*conv2d.stock" if config.objective is Objective.COLD else "*direct{*"
        policy = replace(config.planning, pins=(Pin("c", "*direct{*"), Pin("d", routine)))
        recipe = guessed_recipe(found.imported, found.candidates.variants, policy)
        (build,) = builder.build([recipe])
        profiled = Profiled(recipe, 1.0, None, None, memory=build.files.weight_bytes + ACTIVATION_BYTES)
        refined = Refined(recipe, profiled, recipe.plan, Tables({}, {}), InNetworkTimes(), ())
        return switching.Made(Tuned(refined, Mock(), builder, runner, found.calibration.samples), refined, 0.0)

    monkeypatch.setattr(switching, "_make", make)


@pytest.mark.usefixtures("guessing")
def test_compiling_checks_both_plans_and_says_what_the_second_costs(tmp_path: Path, made: Made) -> None:
    model, output = write_model(tmp_path), tmp_path / "out.vmfb"
    config = CompileConfig(
        threads=1,
        jobs=1,
        objective=Objective.COLD_LATENCY,
        database=tmp_path / "tuning.db",
    )
    artifact = sartor.compile(model, config, output=output)
    assert artifact.successor is not None
    assert artifact.plan.layers != artifact.successor.layers
    assert artifact.added_bytes == made.counts[1]
    assert all(error is not None and error < 1e-4 for error in (artifact.error, artifact.successor_error))
    assert summary(artifact)["successor"]["added_weight_bytes"] == made.counts[1]


@pytest.mark.parametrize("short", [0, 1])
def test_without_memory_for_both_the_file_has_the_first_plan(
    short: int, made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The second plan alone needs more, and both share the first convolution's weights."""
    joined = nullcontext((made.files, made.counts))
    monkeypatch.setattr(switching, "_joined", lambda *arguments: joined)
    monkeypatch.setattr(switching, "_with_one", lambda one, *arguments: one)
    monkeypatch.setattr(switching, "_verified", Mock(side_effect=CompileError("both are checked")))
    needed = sum(made.counts) + ACTIVATION_BYTES
    plans = [
        Mock(recipe=recipe, weight_bytes=size, refined=Mock(profiled=Mock(memory=size + extra)))
        for recipe, size, extra in zip(made.recipes, (made.counts[0], 9), (7, ACTIVATION_BYTES), strict=True)
    ]
    config = replace(CONFIG, memory_limit=needed - short)
    arguments: Any = (*plans, made.imported, config, Mock(), tmp_path / "out.vmfb", Mock())
    if not short:
        with pytest.raises(CompileError, match="both are checked"):
            switching._staged(*arguments)
        return
    assert switching._staged(*arguments) is plans[0]
    assert f"need {needed} bytes of memory together" in caplog.text
