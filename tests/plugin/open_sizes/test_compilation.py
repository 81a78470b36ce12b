"""One plan for any size: compiled, checked, run by sessions and stock tools, and replayed."""

from __future__ import annotations

import json
import subprocess
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from sartor.artifact import Artifact
from sartor.cli.commands import compare as compare_command
from sartor.cli.commands.bench import bench
from sartor.cli.commands.inspect import inspect
from sartor.cli.commands.report import report
from sartor.cli.commands.run import run
from sartor.cli.tables.compile_summary import summary
from sartor.codegen.ir.sizes.dims import Symbol
from sartor.codegen.ir.sizes.fit import small_sizes, twin_sizes
from sartor.codegen.ir.target import Target
from sartor.comparison.compare_job import ask
from sartor.config import CompileConfig
from sartor.errors import CompileError, DeviceError, InfeasibleError, UnsupportedModelError, UsageError
from sartor.open_sizes.checking import checked_sizes
from sartor.open_sizes.compilation import OpenConfig, compile_open
from sartor.open_sizes.symbols import OpenDims
from sartor.pipeline import compile_model
from sartor.planning.recipe import Recipe
from sartor.profiling.builder import Builder
from sartor.report.evidence import read_evidence
from sartor.runtime.driver.program import Program
from sartor.runtime.driver.signature import Array
from sartor.runtime.files.open_sizes import GivenSize, OpenSize, Place
from sartor.runtime.manifest import GIVEN_FORMAT, read_manifest
from sartor.runtime.memory import allocated_bytes
from sartor.runtime.opening import Opened
from sartor.runtime.output_error import relative_error
from sartor.runtime.reference import OnnxRuntimeReference
from sartor.runtime.session import Session
from sartor.settings.size_range import SizeRange
from sartor.several.settings import SeveralConfig
from sartor.tuning.selection.problem.cost import Objective
from sartor.tuning.selection.problem.limits import Quantity
from sartor.tuning.store.store import Store
from tests.open_models import feed_forward, saved
from tests.plugin.open_sizes.planted import plant_wrong_outputs

WIDTH, MOST = 24, 40
SHAPES = {"x": (SizeRange(1, MOST), WIDTH)}


@dataclass(frozen=True)
class Made:
    """A file for any number of rows, and the model that it was made of."""

    artifact: Artifact
    model: Path
    config: CompileConfig

    def expected(self, x: Array) -> list[Array]:
        return OnnxRuntimeReference(self.model, threads=1)({"x": x})


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = tmp_path_factory.mktemp("open")
    model = saved(feed_forward(WIDTH), folder / "net.onnx")
    # All layers are measured, also where little can be gained.
    config = CompileConfig(threads=1, jobs=1, database=folder / "tuning.db", plans=1, tune_until=0.0)
    fair = OpenConfig(replace(config, objective=Objective.REGRET), SHAPES)
    return Made(compile_open(model, folder / "net.vmfb", fair), model, config)


def rows(count: int, seed: int = 0) -> Array:
    return np.random.default_rng([count, seed]).standard_normal((count, WIDTH)).astype(np.float32)


def test_a_session_takes_any_number_of_rows_in_the_range(made: Made) -> None:
    session = Session(made.artifact.path)
    for count in [1, MOST, 2, 3, 7, 13, 17, 29, 37, 39, 1]:
        found, expected = session.run(None, {"x": rows(count)}), made.expected(rows(count))
        assert found[0].shape == expected[0].shape
        assert relative_error(found, expected) < 1e-5, count


def test_layers_run_kernels_and_the_file_is_checked_at_several_sizes(made: Made) -> None:
    routines = {layer.variant.partition("{")[0] for layer in made.artifact.plan.layers}
    assert routines == {"cpu:f32/matmul.product", "cpu:f32/block.rowwise"}
    assert made.artifact.samples >= 4
    assert made.artifact.error is not None
    assert made.artifact.error < 1e-5


def test_layers_are_measured_with_several_sizes_whose_mean_counts(made: Made) -> None:
    assert [call.by_name for call in made.artifact.calls] == [{"rows": MOST}, {"rows": 1}, {"rows": 7}]
    assert sum(call.share for call in made.artifact.calls) == pytest.approx(1)
    calls = "; ".join(map(str, made.artifact.calls))
    tasks = {layer.task for layer in made.artifact.plan.layers}
    with Store.open(made.config.database) as store:
        stored = {measurement.key.task for measurement in store.measurements()}
        assert {f"{task}@{calls}" for task in tasks} <= stored
        assert {f"{task}#rows={rows}" for task in tasks for rows in (1, 7, MOST)} <= stored
        assert read_evidence(store, made.artifact.plan, tasks).tasks.keys() == tasks
    shown = summary(made.artifact)
    assert shown["sizes"][0] == f"rows=1..{MOST}"
    assert shown["calls"][1]["sizes"] == {"rows": 1}


def test_a_plan_with_the_least_regret_tells_its_ratio_to_the_best_for_each_call(made: Made) -> None:
    ratios = [told.split() for told in made.artifact.sizes if "the least time of a plan" in told]
    assert [words[1] for words in ratios] == [f"rows={rows}" for rows in (MOST, 1, 7)]
    assert all(float(words[2]) >= 1 for words in ratios)


def test_regret_of_one_size_is_refused(made: Made, tmp_path: Path) -> None:
    fair = replace(made.config, objective=Objective.REGRET)
    with pytest.raises(UsageError, match="all sizes of this model are fixed; leave it out"):
        compile_model(made.model, tmp_path / "net.vmfb", replace(fair, shapes={"x": (4, WIDTH)}))
    with pytest.raises(UsageError, match="several plans are asked for; give a range of sizes"):
        SeveralConfig(fair, (fair.target,), ({"x": (4, WIDTH)}, {"x": (5, WIDTH)}))


def test_commands_make_inputs_up_of_the_sizes_that_are_given(
    made: Made, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run(made.artifact.path, size=["rows=7"], threads=1, json=True)
    assert json.loads(capsys.readouterr().out)["outputs"][0]["shape"] == [7, 19]
    inspect(made.artifact.path, size=["rows=7"])
    shown = capsys.readouterr().out
    assert f"float32[7, {WIDTH}]" in shown
    assert f"'rows' from 1 to {MOST}" in shown
    asked = Mock(wraps=ask)
    monkeypatch.setattr(compare_command, "ask", asked)
    compare_command.compare(made.artifact.path, made.model, size=["rows=11"], threads=1, json=True)
    assert json.loads(capsys.readouterr().out)["outputs"]
    # The reference is prepared for this size: with a size of 0, as a signature for any size has, windows fit no input.
    assert [spec.shape for spec in asked.call_args.args[1].signature.inputs] == [(11, WIDTH)]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("rows", "--size 'rows' cannot be read"),
        ("columns=3", r"names 'columns'; the dimensions of any size in '.*' are: rows"),
        (f"rows={MOST + 1}", rf"gives 'rows' the size {MOST + 1}, but the module takes 'rows' from 1 to {MOST}"),
    ],
)
def test_sizes_that_a_module_does_not_take_are_refused(text: str, complaint: str, made: Made) -> None:
    with pytest.raises(UsageError, match=complaint):
        run(made.artifact.path, size=[text])
    with pytest.raises(UsageError, match="shape is not fixed; give a file for it, or its sizes with --size"):
        run(made.artifact.path)


def test_times_over_sizes_are_shown_beside_peers_and_drawn_in_a_report(
    made: Made, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    bench(made.artifact.path, vs=made.model, sizes=["rows=3,7"], rounds=1, threads=1, json=True)
    rows = json.loads(capsys.readouterr().out)["sizes"]
    assert [row["sizes"] for row in rows] == [{"rows": 3}, {"rows": 7}]
    assert all([taken["name"] for taken in row["runs"]] == ["sartor", "onnxruntime"] for row in rows)
    assert all(taken["relative_error"] < 1e-5 for row in rows for taken in row["runs"])
    bench(made.artifact.path, sizes=["3..4"], rounds=1, threads=1)
    shown = capsys.readouterr().out
    assert "rows=3" in shown
    assert "rows=4" in shown
    report([made.artifact.path], tmp_path / "page.html", measure=True, vs=made.model, sizes=["5,6"], threads=1)
    assert '"bySize":[{"sizes":{"rows":5},"seconds":{"sartor":' in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_what_needs_one_size_is_refused_beside_several(made: Made, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--cold is for one size; leave it out, or name the size with --size"):
        bench(made.artifact.path, sizes=["3,7"], cold=True)
    with pytest.raises(UsageError, match="--sizes are timed with --measure"):
        report([made.artifact.path], tmp_path / "page.html", sizes=["3,7"])
    with pytest.raises(UsageError, match="is for any 'rows', and layers are compared one by one where sizes are known"):
        compare_command.compare(made.artifact.path, made.model, size=["rows=11"], layers=True)


def test_the_manifest_has_the_range(made: Made) -> None:
    manifest = read_manifest(made.artifact.path)
    assert manifest.sizes == (OpenSize("rows", 1, MOST, 1, (Place("x", 0),)),)
    assert manifest.given == (GivenSize(manifest.outputs[0].name, 0, ("rows",), 1, 0, 1),)
    assert (manifest.format, manifest.inputs[0].shape, manifest.outputs[0].shape) == (
        GIVEN_FORMAT,
        (None, WIDTH),
        (None, 19),
    )
    assert type(manifest).from_json(manifest.to_json()) == manifest


def test_calls_of_any_size_go_through_memory_that_is_kept(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    invoke = Program.invoke

    def counted(program: Program, function: str, *operands: Any) -> Any:
        calls.append(function)
        return invoke(program, function, *operands)

    monkeypatch.setattr(Program, "invoke", counted)
    session = Session(made.artifact.path, threads=1)
    counts = [3, 7, 3, 7, 3, 7, 3, 40, 40, 40, 7]
    found = [session.run(None, {"x": rows(count, index)}) for index, count in enumerate(counts)]
    assert not calls, "none is an ordinary call, not the first with a size either"
    for index, (count, outputs) in enumerate(zip(counts, found, strict=True)):
        assert relative_error(outputs, made.expected(rows(count, index))) < 1e-5, count
    with pytest.raises(UsageError, match=r"input 'x' expects float32\[\?, 24\], but got element type float64"):
        session.run(None, {"x": rows(3).astype(np.float64)})
    session.close()
    with pytest.raises(UsageError, match="the session is closed"):
        session.run(None, {"x": rows(3)})


def test_short_calls_on_the_calling_thread_give_the_same_bits(made: Made) -> None:
    one, two = Session(made.artifact.path, threads=1), Session(made.artifact.path, threads=2)
    for seed, count in enumerate([1, MOST, 2, 3, 1, 17, 29] * 10):
        expected, found = (each.run(None, {"x": rows(count, seed)}) for each in (one, two))
        np.testing.assert_array_equal(found[0], expected[0])
    with ThreadPoolExecutor(2) as pool:
        counts = [1, 5, 40, 2] * 8
        results = pool.map(lambda count: two.run(None, {"x": rows(count)}), counts)
        for count, found in zip(counts, results, strict=True):
            np.testing.assert_array_equal(found[0], one.run(None, {"x": rows(count)})[0])
    two.close()
    with pytest.raises(UsageError, match="closed"):
        two.run(None, {"x": rows(1)})


def test_noise_is_drawn_once_for_each_call_wherever_it_runs(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = list[Array]()

    def completed(feeds: Any, _: Any) -> Any:
        drawn.append(rows(3, len(drawn)))
        return {**feeds, "x": drawn[-1]}

    with Session(made.artifact.path, threads=1) as one, Session(made.artifact.path, threads=2) as two:
        monkeypatch.setattr(two, "_noise", Mock(completed=completed))
        for number in range(1, 21):
            (found,) = two.run(None, {})
            assert len(drawn) == number
            np.testing.assert_array_equal(found, one.run(None, {"x": drawn[-1]})[0])
        assert two._inline is not None


def test_calls_go_on_where_the_model_cannot_be_opened_a_second_time(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    inline = Mock(side_effect=DeviceError("no memory"))
    monkeypatch.setattr(Opened, "inline", inline)
    with Session(made.artifact.path, threads=1) as one, Session(made.artifact.path, threads=2) as two:
        for seed in range(20):
            found, expected = (each.run(None, {"x": rows(5, seed)}) for each in (two, one))
            np.testing.assert_array_equal(found[0], expected[0])
    inline.assert_called_once_with()


@pytest.mark.parametrize("count", [0, MOST + 1])
def test_a_size_out_of_the_range_is_refused_by_name(made: Made, count: int) -> None:
    session = Session(made.artifact.path)
    with pytest.raises(UsageError, match=rf"dimension 0 of input 'x' has the size {count}.* 'rows' from 1 to {MOST}"):
        session.run(None, {"x": rows(count)})
    assert relative_error(session.run(None, {"x": rows(3)}), made.expected(rows(3))) < 1e-5


def test_concurrent_calls_of_different_sizes_leave_nothing_of_each_other(made: Made) -> None:
    session = Session(made.artifact.path, threads=2)
    counts = [1 + 7 * index % MOST for index in range(60)]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda count: session.run(None, {"x": rows(count, 1)}), counts))
    expected = {count: made.expected(rows(count, 1)) for count in set(counts)}
    assert all(relative_error(each, expected[count]) < 1e-5 for each, count in zip(found, counts, strict=True))


def test_stock_tools_run_any_size_and_the_module_refuses_others(made: Made, tmp_path: Path) -> None:
    tool = Path(sysconfig.get_path("scripts")) / "iree-run-module"
    for count in (1, 11, MOST, MOST + 1):
        np.save(tmp_path / "x.npy", rows(count))
        options = ["--device=local-sync", "--function=main_graph", f"--input=@{tmp_path / 'x.npy'}"]
        command = [tool, f"--module={made.artifact.path}", *options, f"--output=@{tmp_path / 'y.npy'}"]
        result = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False)
        if count > MOST:
            assert result.returncode != 0
            assert f"a size is not in the range rows=1..{MOST}" in result.stderr
        else:
            assert relative_error([np.load(tmp_path / "y.npy")], made.expected(rows(count))) < 1e-5


def test_a_saved_plan_gives_the_same_bytes(made: Made, tmp_path: Path) -> None:
    files = []
    for name in ("one.vmfb", "other.vmfb"):
        replayed = compile_open(
            made.model, tmp_path / name, OpenConfig(made.config, SHAPES), plan=made.artifact.plan.unmeasured()
        )
        files.append(replayed.path.read_bytes())
    assert files[0] == files[1]


def test_a_plan_for_another_range_is_refused(made: Made, tmp_path: Path) -> None:
    other = OpenConfig(made.config, {"x": (SizeRange(1, MOST - 1), WIDTH)})
    with pytest.raises(UsageError, match="another model, or for other shapes"):
        compile_open(made.model, tmp_path / "net.vmfb", other, plan=made.artifact.plan)
    assert not (tmp_path / "net.vmfb").exists()


def test_a_file_that_is_wrong_at_one_size_is_not_written(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant_wrong_outputs(monkeypatch, 3)
    with pytest.raises(CompileError, match=r"with rows=\d+: relative error 0.5.*give the sizes that occur"):
        compile_open(
            made.model, tmp_path / "net.vmfb", OpenConfig(made.config, SHAPES), plan=made.artifact.plan.unmeasured()
        )
    assert not (tmp_path / "net.vmfb").exists()


@pytest.mark.parametrize(
    ("shapes", "complaint"),
    [
        ({"z": (SizeRange(1, 8), WIDTH)}, "the input 'z', which the model does not have"),
        ({"x": (SizeRange(1, 8), SizeRange(1, 8))}, "the model fixes it to 24"),
        ({"x": (SizeRange(1, 8),)}, "1 dimensions, and the model declares 2"),
    ],
)
def test_ranges_that_do_not_fit_the_model_are_refused(
    shapes: dict[str, tuple[int | SizeRange, ...]], complaint: str, made: Made, tmp_path: Path
) -> None:
    with pytest.raises((UsageError, UnsupportedModelError), match=complaint):
        compile_open(made.model, tmp_path / "net.vmfb", OpenConfig(made.config, shapes))


@pytest.mark.parametrize(
    ("config", "option"),
    [
        (CompileConfig(objective=Objective.COLD_LATENCY), r"--objective cold\+latency"),
        (CompileConfig(target=replace(Target.create("cpu"), others=(Target.create("vulkan"),))), "--target cpu,vulkan"),
    ],
)
def test_what_is_not_for_any_size_yet_is_refused(config: CompileConfig, option: str) -> None:
    with pytest.raises(UsageError, match=f"cannot be made with {option}"):
        OpenConfig(config, SHAPES)


def test_samples_of_the_users_have_sizes_of_their_own_and_are_read(tmp_path: Path) -> None:
    model, samples = saved(feed_forward(WIDTH), tmp_path / "net.onnx"), tmp_path / "samples"
    samples.mkdir()
    for rows in (3, 7):
        np.savez(samples / f"{rows}.npz", x=np.ones((rows, WIDTH), np.float32))
    config = CompileConfig(threads=1, jobs=1, database=tmp_path / "tuning.db", calibration=samples, time_budget=0)
    made = compile_open(model, tmp_path / "net.vmfb", OpenConfig(config, SHAPES))
    assert made.error is not None
    np.savez(samples / "9.npz", x=np.full((9, WIDTH), np.nan, np.float32))
    with pytest.raises(UsageError, match=r"9.npz': input 'x' of sample 0 holds values that are not finite"):
        compile_open(model, tmp_path / "other.vmfb", OpenConfig(config, SHAPES))
    np.savez(samples / "9.npz", x=np.ones((MOST + 1, WIDTH), np.float32))
    with pytest.raises(UsageError, match=rf"sample 2 of .* has the size {MOST + 1}, but the module takes 'rows'"):
        compile_open(model, tmp_path / "other.vmfb", OpenConfig(config, SHAPES))


def test_a_limit_of_memory_holds_for_the_greatest_sizes_by_what_iree_plans_for_them(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call with these takes what was planned, and one with others less."""
    planned, real = list[int | None](), Builder.planned_memory

    def noted(self: Builder, recipe: Recipe) -> int | None:
        planned.append(real(self, recipe))
        return planned[-1]

    monkeypatch.setattr(Builder, "planned_memory", noted)
    least = 4 * MOST * (WIDTH + 19)
    config = CompileConfig(threads=1, jobs=1, database=made.config.database, time_budget=0.0, memory_limit=1 << 20)
    front = replace(config, objective=Objective.MEMORY, pareto=(Quantity.LATENCY, Quantity.MEMORY))
    found = compile_open(made.model, tmp_path / "net.vmfb", OpenConfig(front, SHAPES))
    manifest = read_manifest(found.path)
    taken = {
        count: allocated_bytes(found.path, {"x": rows(count)}, manifest.signature, {}) for count in (1, MOST // 2, MOST)
    }
    peaks = [each.peak for each in taken.values() if each is not None]
    assert found.plan.memory is not None
    assert found.plan.memory in planned
    assert least < found.plan.memory <= 1 << 20
    assert found.pareto is not None
    # What tables count of IREE's own code, which shares no memory, is too little, so that another may take less yet.
    assert {point.needed[Quantity.MEMORY] for point in found.pareto.points} <= set(planned)
    assert peaks == sorted(set(peaks))
    with pytest.raises(InfeasibleError, match="memory"):
        compile_open(made.model, tmp_path / "no.vmfb", OpenConfig(replace(config, memory_limit=least), SHAPES))
    assert not (tmp_path / "no.vmfb").exists()


def test_a_symbol_has_one_range_in_all_inputs() -> None:
    declared: dict[str, tuple[int | str, ...]] = {"a": ("n", 3), "b": ("n", "m"), "c": (2, 2)}
    dims = OpenDims(declared, {"a": (SizeRange(1, 8), 3), "b": (SizeRange(1, 8), 5)})
    assert dims.symbols == (Symbol("n", 1, 8),)
    assert dims.shapes({"n": 4}) == {"a": (4, 3), "b": (4, 5)}
    with pytest.raises(UsageError, match=r"'n' the sizes 1\.\.8 and 1\.\.9"):
        OpenDims(declared, {"a": (SizeRange(1, 8), 3), "b": (SizeRange(1, 9), 5)})


def test_inputs_of_given_sizes_are_bound_and_scalars_need_none() -> None:
    declared: dict[str, tuple[int | str, ...]] = {"a": ("n", 3), "b": ("m", 4), "rate": ()}
    dims = OpenDims(declared, {"a": (SizeRange(1, 8), 3), "b": (7, 4)})
    assert dims.shapes({"n": 2}) == {"a": (2, 3), "b": (7, 4)}
    with pytest.raises(UsageError, match="gives 'rate' 1 dimensions, and the model declares 0"):
        OpenDims(declared, {"a": (SizeRange(1, 8), 3), "rate": (1,)})


def test_a_symbol_with_a_number_has_the_size_of_the_symbol_and_so_much_more() -> None:
    declared: dict[str, tuple[int | str, ...]] = {"a": ("n - 1", 3), "b": (2, "n"), "c": ("m + 2", "n")}
    dims = OpenDims(declared, {}, {"n": SizeRange(1, 8)})
    assert dims.symbols == (Symbol("n", 1, 8),)
    assert dims.shapes({"n": 1}) == {"a": (0, 3), "b": (2, 1)}
    assert OpenDims(declared, {"c": (5, 4)}).shapes({}) == {"a": (3, 3), "b": (2, 4), "c": (5, 4)}


def test_sizes_are_checked_from_the_least_on_at_neighbours() -> None:
    batch, tokens, width = Symbol("b", 1, 8), Symbol("t", 1, 512), Symbol("w", 32, 640, 32)
    assert checked_sizes([tokens]) == [{"t": 1}, {"t": 23}, {"t": 24}, {"t": 25}]
    assert checked_sizes([width]) == [{"w": 32}, {"w": 160}, {"w": 192}, {"w": 224}]
    found = checked_sizes([batch, tokens, width])
    assert all(each.allows(sizes[each.name]) for sizes in found for each in (batch, tokens, width))
    assert found[0] == {"b": 1, "t": 1, "w": 32}
    assert found[-1]["b"] == 1


@pytest.mark.parametrize(("least", "most"), [(1, 4), (1, 8), (3, 10), (7, 8), (5, 5)])
def test_small_ranges_are_checked_whole(least: int, most: int) -> None:
    symbol = Symbol("n", least, most)
    imported = {most, *twin_sizes([symbol]), *small_sizes([symbol])}
    assert {*range(least, most + 1)} <= imported | {checked_size["n"] for checked_size in checked_sizes([symbol])}
