"""Cases of open sizes: measured with those of several calls, of which each is checked and the mean time counts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest

from sartor.codegen.ir.graph import LayerGraph
from sartor.codegen.ir.sizes.calls import SizedCall
from sartor.codegen.ir.sizes.dims import Symbol
from sartor.codegen.ir.sizes.fit import Fit
from sartor.codegen.ir.target import Target
from sartor.codegen.kernels.emit.assembler import Assembler
from sartor.codegen.kernels.emit.index_arithmetic import Condition, Index
from sartor.codegen.kernels.open_sizes.row_cut import CutParts
from sartor.codegen.routines import routines_for
from sartor.costing.listing import list_candidates
from sartor.dialect_passes.opening.open_graph import open_graph
from sartor.frontend.import_job import run_import
from sartor.frontend.imported_model import ImportedModel
from sartor.tuning.cost_tables.tables import tuned_cases
from sartor.tuning.measuring.benchmark_case import PROBE, BenchmarkCase, may_be_short
from sartor.tuning.measuring.compile_job import compile_cases
from sartor.tuning.measuring.measure_job import MeasureSettings, VariantSamples, measure_case
from sartor.tuning.measuring.runs.sized_runner import SizedRunner, TimedCall
from sartor.tuning.measuring.runs.variant_runner import VariantRunner
from sartor.tuning.measuring.tuner import Tuner, TuneSettings
from sartor.tuning.records.measurement import Status
from sartor.tuning.store.store import Store
from tests.open_models import feed_forward, saved

TARGET = replace(Target.create("cpu"), threads=1)
CALLS = (SizedCall((("rows", 64),), 0.0), SizedCall((("rows", 7),), 0.75), SizedCall((("rows", 1),), 0.25))


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> LayerGraph:
    path = saved(feed_forward(), tmp_path_factory.mktemp("sized") / "model.onnx")
    models = [run_import(path, {"x": (rows, 24)}, None) for rows in (64, 61)]
    one, other = (model for model in models if isinstance(model, ImportedModel))
    opened = open_graph((one.graph, one.weights), (other.graph, other.weights), Fit((Symbol("rows", 1, 64),), (61,)))
    return replace(opened, calls=CALLS)


@pytest.fixture(scope="module")
def case(graph: LayerGraph) -> BenchmarkCase:
    """A product of rows, by stock code and by a kernel whose tiles have several rows."""
    variants = list_candidates(graph, routines_for(frozenset()), TARGET).variants
    found = next(
        tuned_case for tuned_case in tuned_cases(graph, variants) if tuned_case.variants[-1].routine == "product"
    )
    kernels = [variant for variant in found.variants if dict(variant.parameters).get("columns", 1) in (4, 8)]
    return replace(found, variants=(found.variants[0], kernels[0]))


def measured(case: BenchmarkCase, folder: Path) -> list[VariantSamples]:
    compiled, probe = compile_cases([case, PROBE], TARGET, folder)
    settings = MeasureSettings("cpu", 1, 1e-3, rounds=2, seconds=0.05)
    found = measure_case(case, compiled.modules, settings, next(iter(probe.modules.values())))
    return [found[variant.descriptor] for variant in case.variants]


def test_a_case_names_its_calls_and_has_their_sizes(case: BenchmarkCase) -> None:
    assert case.stored_key == f"{case.key}@rows=64*0; rows=7*0.75; rows=1*0.25"
    assert replace(case, calls=()).stored_key == case.key
    small = case.at(case.calls[1])
    assert (small.inputs[0].shape, small.results[0].shape) == ((7, 24), (7, 40))
    assert "operations=13440 " in small.facts
    assert f"read={4 * 24 * (0.75 * 7 + 0.25):.0f}" in case.facts
    assert may_be_short(case, is_cpu=True)


def test_variants_are_timed_and_checked_with_all_sizes(case: BenchmarkCase, tmp_path: Path) -> None:
    found = measured(case, tmp_path)
    assert [each.status for each in found] == [Status.OK, Status.OK]
    assert all(len(each.samples) >= 2 for each in found)
    for each in found:
        large, small = each.by_call
        assert len(large) == len(small) == len(each.samples)
        means = [0.75 * one + 0.25 * other for one, other in zip(large, small, strict=True)]
        assert means == pytest.approx(each.samples)
    assert found[1].baseline_by_call == found[0].by_call


def test_other_shares_of_the_sizes_that_were_measured_need_no_measuring(case: BenchmarkCase) -> None:
    name, broken = (variant.descriptor for variant in case.variants)
    settings = TuneSettings(TARGET, MeasureSettings("cpu", 1, 1e-3))
    with Store.in_memory() as store:
        tuner = Tuner(store, Mock(), settings, lambda *_: None)
        taken = VariantSamples(Status.OK, (3.5, 4.5), error=1e-7, by_call=((4.0, 5.0), (2.0, 3.0)))
        tuner._put(case, name, taken.at_pace(2.0))
        tuner._put(case, broken, VariantSamples(Status.CRASHED, message="it ended"))
        swapped = with_shares(case, 0.0, 0.25, 0.75)
        found = tuner.known([swapped])[case.key]
        assert (found[name].samples, found[name].facts) == ((1.25, 1.75), swapped.facts)
        assert (found[broken].status, found[broken].message) == (Status.CRASHED, "it ended")
        assert found[name].key.task == swapped.stored_key
        assert tuner.known([with_shares(case, 0.0, 0.0, 1.0)])[case.key][name].samples == (1.0, 1.5)
        # With the largest sizes nothing was timed.
        assert tuner.known([with_shares(case, 0.5, 0.25, 0.25)])[case.key] == {}
        by_call = {each.key.task: each for each in store.measurements() if each.key.is_of_one_call}
    assert by_call.keys() == {f"{case.key}#rows=7", f"{case.key}#rows=1"}
    assert "operations=13440 " in by_call[f"{case.key}#rows=7"].facts


def test_a_call_of_which_no_time_is_known_is_measured_for_other_shares(case: BenchmarkCase) -> None:
    """As stock code is not timed that takes long with the largest sizes: with others it need not be free."""
    name = case.variants[0].descriptor
    with Store.in_memory() as store:
        tuner = Tuner(store, Mock(), TuneSettings(TARGET, MeasureSettings("cpu", 1, 1e-3)), lambda *_: None)
        tuner._put(case, name, VariantSamples(Status.OK, (3.0,), error=1e-7, by_call=((4.0,), ())))
        assert tuner.known([case])[case.key][name].samples == (3.0,)
        assert tuner.known([with_shares(case, 0.0, 1.0, 0.0)])[case.key][name].samples == (4.0,)
        assert tuner.known([with_shares(case, 0.0, 0.0, 1.0)])[case.key] == {}


def with_shares(case: BenchmarkCase, *shares: float) -> BenchmarkCase:
    pairs = zip(case.calls, shares, strict=True)
    return replace(case, calls=tuple(replace(call, of=replace(call.of, share=share)) for call, share in pairs))


def test_a_kernel_without_code_for_lower_tiles_is_wrong_where_whole_tiles_are_right(
    case: BenchmarkCase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def of_whole_tiles(parts: CutParts, asm: Assembler, height: int) -> tuple[Condition, tuple[Index, Index]]:
        return of_height(parts, asm, height) if height in (4, 8) else (False, (0, 0))

    of_height = CutParts.of_height
    monkeypatch.setattr(CutParts, "of_height", of_whole_tiles)
    alone = measured(replace(case, calls=case.calls[:1]), tmp_path)
    assert [each.status for each in alone] == [Status.OK, Status.OK]
    (tmp_path / "all").mkdir()
    found = measured(case, tmp_path / "all")
    assert [each.status for each in found] == [Status.OK, Status.WRONG_RESULT]


def test_a_time_is_the_mean_of_calls_that_have_a_share(case: BenchmarkCase) -> None:
    runner = object.__new__(SizedRunner)
    made = [object.__new__(VariantRunner) for _ in range(3)]
    for seconds, each in enumerate(made, 1):
        each.timed = lambda overhead, seconds=seconds: seconds - overhead  # type: ignore[method-assign,misc]
        each.least_seconds = float(seconds)
    runner._timed, runner._rounds = [(0.75, TimedCall(made[1])), (0.25, TimedCall(made[2]))], []
    assert list(runner.by_call) == [(2.0,), (3.0,)]
    made[2].least_seconds = 0.0
    assert list(runner.by_call) == [(2.0,), ()]
    made[2].least_seconds = 3.0
    assert runner.timed(1.0) == 0.75 * 1 + 0.25 * 2
    assert runner.by_call == ((1.0,), (2.0,))
    assert runner.least_seconds == 0.75 * 2 + 0.25 * 3


@pytest.mark.parametrize(("scale", "runs"), [(1.0, 3), (1e-6, 6)])
def test_long_calls_are_timed_a_few_times_and_short_ones_as_often_as_asked(scale: float, runs: int) -> None:
    taken = iter([9 * scale, 1 * scale, 2 * scale, *[7 * scale] * 9])
    call = TimedCall(Mock(timed=lambda _: next(taken)))
    samples = [call.timed(0.0) for _ in range(6)]
    assert samples == [9 * scale, 1 * scale, 2 * scale, *([2 * scale] * 3 if runs == 3 else [7 * scale] * 3)]
