"""One file for any size on two CPU levels: right with each size on each level, also by stock tools."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from sartor.artifact import SeveralArtifact
from sartor.cli.commands.open_levels import compile_open_levels
from sartor.codegen.ir.target import Target
from sartor.config import CompileConfig
from sartor.errors import CompileError, UsageError
from sartor.frontend.target_check import runs_here
from sartor.open_sizes import levels
from sartor.open_sizes.compilation import OpenConfig
from sartor.runtime.driver.signature import Array
from sartor.runtime.manifest import GIVEN_FORMAT, read_manifest
from sartor.runtime.output_error import relative_error
from sartor.runtime.reference import OnnxRuntimeReference
from sartor.runtime.session import Session
from sartor.runtime.several.levels import likely_level
from sartor.settings.size_range import SizeRange
from sartor.tuning.selection.problem.cost import Objective
from tests.emulated_x86 import Stock, emulated
from tests.open_models import feed_forward, saved
from tests.plugin.calling import assert_refused, call, parsed
from tests.plugin.open_sizes.planted import plant_wrong_outputs

WIDTH, MOST = 24, 40
SHAPES = {"x": (SizeRange(1, MOST), WIDTH)}
LEVELS = ("x86-64-v4", "x86-64-v3")
# The least, the greatest, and odd ones around tiles.
SIZES = (1, 2, 7, 13, 17, 31, MOST - 1, MOST)


@dataclass(frozen=True)
class Made:
    """A file, and the model that it was made of."""

    artifact: SeveralArtifact
    model: Path
    opened: OpenConfig

    @property
    def path(self) -> Path:
        return self.artifact.path

    def expected(self, count: int) -> list[Array]:
        return OnnxRuntimeReference(self.model, threads=1)({"x": rows(count)})


def targets() -> tuple[Target, ...]:
    return tuple(Target.create("cpu", level) for level in LEVELS)


def rows(count: int) -> Array:
    return np.random.default_rng(count).standard_normal((count, WIDTH)).astype(np.float32)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    if missing := next((target for target in targets() if not runs_here(target)), None):
        pytest.skip(f"this machine runs no {missing}, and files for any size are checked where they are made")
    folder = tmp_path_factory.mktemp("levels")
    model = saved(feed_forward(WIDTH), folder / "net.onnx")
    config = CompileConfig(
        threads=1, jobs=1, database=folder / "t.db", plans=1, time_budget=0.0, objective=Objective.REGRET
    )
    opened = OpenConfig(config, SHAPES)
    made = Made(compile_open_levels(model, folder / "net.vmfb", opened, targets()[::-1]), model, opened)
    made.artifact.plan_set.save(folder / "plans.json")
    return made


def test_a_session_takes_any_size_on_the_level_that_it_has(made: Made) -> None:
    with Session(made.path, threads=1) as session:
        assert session.level == likely_level(read_manifest(made.path).alternatives)
        assert [each.shape for each in session.get_inputs()] == [[None, WIDTH]]
        for count in (*SIZES, 3, 1):
            found = session.run(None, {"x": rows(count)})
            assert found[0].shape == (count, 19)
            assert relative_error(found, made.expected(count)) < 1e-5, count
            (later,) = session.run_async(None, {"x": rows(count)}).result()
            np.testing.assert_array_equal(found[0], later)
        with pytest.raises(UsageError, match=rf"has the size {MOST + 1}, but the module takes 'rows' from 1 to {MOST}"):
            session.run(None, {"x": rows(MOST + 1)})


def test_sessions_keep_memory_for_any_size_as_those_of_one_level_do(made: Made) -> None:
    with Session(made.path, threads=1) as session:
        assert session._kept.is_sized


@pytest.mark.parametrize(("cpu", "level"), [("", 0), ("Haswell", 1)])
def test_stock_tools_run_any_size_on_each_level(cpu: str, level: int, made: Made) -> None:
    stock = emulated(cpu) if cpu else Stock()
    if not isinstance(stock, Stock):
        pytest.skip(stock)
    assert stock.number(made.path, "main_graph$level") == level
    for count in (1, 13, MOST):
        assert relative_error([stock.run(made.path, "main_graph", [rows(count)])], made.expected(count)) < 1e-5, count


def test_a_file_says_what_it_has(made: Made) -> None:
    manifest = read_manifest(made.path)
    assert (manifest.format, manifest.levels) == (GIVEN_FORMAT, LEVELS)
    assert [alternative.shapes for alternative in manifest.alternatives] == [f"x=?,{WIDTH}"] * 2
    assert type(manifest).from_json(manifest.to_json()) == manifest
    assert made.artifact.sizes == (f"'rows' from 1 to {MOST}",)
    assert all(error is not None and error < 1e-5 for error in made.artifact.errors)
    shown = call("sartor", "inspect", made.path).stdout
    assert f"'rows' from 1 to {MOST}" in shown
    assert all(level in shown for level in LEVELS)
    (output,) = parsed(call("sartor", "run", made.path, "--size", "rows=7", "--threads", 1, "--json"))["outputs"]
    assert output["shape"] == [7, 19]


def test_saved_plans_give_the_same_bytes_and_a_report_with_a_page_for_each(made: Made, tmp_path: Path) -> None:
    plans, shape = made.model.parent / "plans.json", f"x=1..{MOST},{WIDTH}"
    options = ["--plan", plans, "--shape", shape, "--report", tmp_path / "page.html"]
    result = call("compile-to-vmfb", made.model, "-o", tmp_path / "net.vmfb", *options)
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "net.vmfb").read_bytes() == made.path.read_bytes()
    assert {path.name for path in tmp_path.glob("*.html")} == {"page.html", "page-1.html", "page-2.html"}


def test_a_file_of_which_one_level_is_wrong_at_one_size_is_not_written(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant_wrong_outputs(monkeypatch, 3)
    plans = made.artifact.plan_set
    with pytest.raises(CompileError, match=r"with rows=\d+: relative error 0.5.*give the sizes that occur"):
        compile_open_levels(made.model, tmp_path / "net.vmfb", made.opened, targets(), plans=plans)
    assert not (tmp_path / "net.vmfb").exists()


def test_a_level_that_this_machine_does_not_run_is_refused_by_name(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(levels, "runs_here", lambda target: "v4" not in str(target))
    with pytest.raises(UsageError, match="this machine runs no cpu:x86-64-v4; leave this level out"):
        compile_open_levels(made.model, tmp_path / "net.vmfb", made.opened, targets())


def test_a_gpu_beside_a_level_is_refused_with_a_way_out(tmp_path: Path) -> None:
    model = saved(feed_forward(WIDTH), tmp_path / "net.onnx")
    options = ["--target", "cpu", "--target", "vulkan", "--shape", f"x=1..{MOST},{WIDTH}"]
    result = call("compile-to-vmfb", model, "-o", tmp_path / "net.vmfb", *options)
    assert_refused(result, 2, "cannot have a plan for vulkan", "give the sizes that occur, as --shape x=1|8,16")
