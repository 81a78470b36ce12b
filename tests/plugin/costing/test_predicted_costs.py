"""Costs for a CPU that cannot be measured here: measured elsewhere for the same target, else predicted for its core."""

from __future__ import annotations

import platform
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from sartor.codegen.ir.layer import TensorType
from sartor.codegen.ir.machines.core import WIDE
from sartor.codegen.ir.schema import Schema
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.candidates import Candidates
from sartor.codegen.linking.adapts import AdaptKind
from sartor.codegen.mlir.kernel_machine import core_of
from sartor.config import CompileConfig
from sartor.costing.candidates import find_candidates
from sartor.costing.layer_costs import make_tuner
from sartor.costing.predicted_costs import PredictedCosts, TimelyConversions, converting_seconds, predicted_tables
from sartor.frontend.imported_model import ImportedModel
from sartor.progress import silent
from sartor.tuning.cost_tables.tables import Tables, tuned_cases
from sartor.tuning.measuring.benchmark_case import BenchmarkCase, adapt_case
from sartor.tuning.measuring.tuner import Tuner
from sartor.tuning.records.measurement import Measurement, Status
from sartor.tuning.store.store import Store
from sartor.tuning.workers.pool import WorkerPool
from tests.importing import ImportedOf

FOREIGN = "x86_64:x86-64-v3" if platform.machine() in ("aarch64", "arm64") else "aarch64:neoverse-n1"
CONFIG = CompileConfig(target=Target.create("cpu", FOREIGN), threads=1)
ONE, OTHER = "Arm one [1]", "Arm other [2]"


@pytest.fixture(scope="module")
def imported(imported_of: ImportedOf) -> ImportedModel:
    return imported_of("residual")


@pytest.fixture(scope="module")
def candidates(imported: ImportedModel) -> Candidates:
    return find_candidates(imported, CONFIG.planning, everything=False)


@pytest.fixture
def tuner() -> Iterable[Tuner]:
    with Store.in_memory() as store, WorkerPool(1) as pool:
        yield make_tuner(store, pool, CONFIG.planning.target, silent)


def _predicted(imported: ImportedModel, candidates: Candidates, tuner: Tuner) -> tuple[Tables, PredictedCosts]:
    return predicted_tables(imported, candidates, tuner, CONFIG.planning)


def _channels_last(size: int) -> AdaptKind:
    tensor = TensorType((1, 64, size, size), "f32")
    return AdaptKind(str(tensor), Schema("cpu", "f32", "nchw"), Schema("cpu", "f32", "nhwc"))


def _put(tuner: Tuner, case: BenchmarkCase, machine: str, seconds: Iterable[float | None], **other: Any) -> None:
    """Store times of a case's first variants as another machine measured them; None for one that crashed."""
    for variant, time in zip(case.variants, seconds, strict=False):
        key = replace(tuner.key(case, variant.descriptor), hardware=machine, **other)
        status = Status.CRASHED if time is None else Status.OK
        tuner.store.put(Measurement(key, status, () if time is None else (time,), facts=case.facts))


def test_without_measurements_all_variants_are_predicted(
    imported: ImportedModel, candidates: Candidates, tuner: Tuner
) -> None:
    tables, costs = _predicted(imported, candidates, tuner)
    assert tables.basis == f"predicted by the cost model for {FOREIGN}, nothing was measured"
    for key, variants in tables.variants.items():
        assert {variant.descriptor for variant in variants} == tables.measured.get(key, {}).keys()
        kernels = [variant for variant in variants if variant.implementation.kernel is not None]
        times = {variant.descriptor: tables.seconds(key, variant.descriptor) or 0.0 for variant in variants}
        assert min(times.values()) > 0
        if kernels:
            assert min(times, key=times.__getitem__) in {kernel.descriptor for kernel in kernels}
    assert not [*tuner.store.measurements()]
    assert costs.machine == ""


def test_a_machine_that_measured_the_target_counts(
    imported: ImportedModel, candidates: Candidates, tuner: Tuner
) -> None:
    first, second, *_ = cases = tuned_cases(imported.graph, candidates.variants)
    _put(tuner, first, ONE, [3e-3, None, 1e-3])
    _put(tuner, second, ONE, [None, None])
    _put(tuner, first, OTHER, [9e-3])
    tables, _ = _predicted(imported, candidates, tuner)
    counts = f"1 of {len(cases)} kinds of layers, the others predicted"
    assert tables.basis == f"measured on another machine, {ONE}, {counts}"
    names = [variant.descriptor for variant in first.variants]
    assert {name: each.status for name, each in tables.measured[first.key].items()} == {
        names[0]: Status.OK,
        names[1]: Status.CRASHED,
        names[2]: Status.OK,
    }
    assert tables.seconds(first.key, names[2]) == 1e-3
    # What failed there is not predicted to work.
    failed = [variant.descriptor for variant in second.variants[:2]]
    assert not set(failed) & tables.measured[second.key].keys()
    assert len(tables.measured[second.key]) == len(tables.variants[second.key]) - len(failed)


def test_a_gpus_times_count_whatever_the_number_of_its_hosts_cores(imported: ImportedModel) -> None:
    target = Target.create("cuda", "sm_90")
    there, here = (CompileConfig(target=target, threads=number) for number in (16, 2))
    candidates = find_candidates(imported, here.planning, everything=False)
    with Store.in_memory() as store, WorkerPool(1) as pool:
        case = tuned_cases(imported.graph, candidates.variants)[0]
        kernel = next(variant for variant in case.variants if variant.routine == "implicit")
        timed = replace(case, variants=(case.variants[0], kernel))
        _put(make_tuner(store, pool, there.target, silent), timed, "host, an H100 [1]", [3e-3, 1e-3])
        own = make_tuner(store, pool, here.target, silent)
        tables, costs = predicted_tables(imported, candidates, own, here.planning)
    assert costs.machine == "host, an H100 [1]"
    assert tables.seconds(case.key, kernel.descriptor) == 1e-3


def test_predictions_are_in_the_scale_of_what_was_measured(
    imported: ImportedModel, candidates: Candidates, tuner: Tuner
) -> None:
    first, second, *_ = tuned_cases(imported.graph, candidates.variants)
    before, _ = _predicted(imported, candidates, tuner)
    _put(tuner, first, ONE, [1e3 * each.time for each in before.measured[first.key].values()])
    after, _ = _predicted(imported, candidates, tuner)
    name = second.variants[0].descriptor
    assert (after.seconds(second.key, name) or 0) > 100 * (before.seconds(second.key, name) or 1)


@pytest.mark.parametrize("other", [{"backend": "cpu:host/0"}, {"runtime": "another"}, {"source": "another"}])
def test_measurements_of_something_else_do_not_count(
    other: dict[str, str], imported: ImportedModel, candidates: Candidates, tuner: Tuner
) -> None:
    _put(tuner, tuned_cases(imported.graph, candidates.variants)[0], ONE, [3e-3, 2e-3], **other)
    tables, costs = _predicted(imported, candidates, tuner)
    assert tables.basis.startswith("predicted by the cost model")
    assert costs.machine == ""


def test_conversions_are_predicted_by_their_size(imported: ImportedModel, candidates: Candidates, tuner: Tuner) -> None:
    _, costs = _predicted(imported, candidates, tuner)
    kinds = [_channels_last(size) for size in (14, 28, 56)]
    times = [next(iter(costs.measure([adapt_case(kind)])[kind.key].values())).time for kind in kinds]
    assert times == sorted(times)
    assert 3 < times[2] / times[1] < 4.1


def test_conversions_that_another_machine_measured_count(
    imported: ImportedModel, candidates: Candidates, tuner: Tuner
) -> None:
    case = adapt_case(_channels_last(7))
    _put(tuner, tuned_cases(imported.graph, candidates.variants)[0], ONE, [3e-3, 2e-3])
    _put(tuner, case, ONE, [7e-3])
    _, costs = _predicted(imported, candidates, tuner)
    assert [each.time for each in costs.measure([case])[case.key].values()] == [7e-3]


@pytest.mark.parametrize(
    ("image", "source", "target", "measured"),
    [
        ("1x16x8x8xf32", "nchw", "nhwc", 0.81),
        ("1x3x224x224xf32", "nchw", "nhwc", 24.5),
        ("1x512x7x7xf32", "nchw16c", "nchw", 3.40),
        ("1x64x56x56xf32", "nhwc", "nchw", 22.0),
        ("1x64x112x112xf32", "nchw", "nchw16c", 91.8),
        ("1x320x7x7xf32", "nhwc", "nchw16c", 3.94),
        ("1x256x14x14xf32", "nchw16c", "nhwc", 15.2),
        ("1x64x112x112xf32", "nchw16c", "nhwc", 230),
    ],
)
def test_conversions_take_about_what_was_measured(image: str, source: str, target: str, measured: float) -> None:
    """Microseconds alone on a Zen 5, AVX-512, one thread. In networks the start of one takes less than alone."""
    kind = AdaptKind(image, Schema("cpu", "f32", source), Schema("cpu", "f32", target))
    assert 0.6 < 1e6 * converting_seconds(adapt_case(kind), WIDE) / measured < 1.4


@pytest.mark.parametrize(("times", "measures"), [(1, False), (3, True)])
def test_conversions_that_take_next_to_nothing_are_not_measured(times: int, measures: bool, tuner: Tuner) -> None:
    """A plan that converts three tensors so takes three times as long for it."""
    core, case = core_of(tuner.target), adapt_case(_channels_last(14))
    asked: list[BenchmarkCase] = []

    class Measuring:
        """Notes what it is asked to measure."""

        target, key, known = tuner.target, tuner.key, tuner.known

        def measure(self, cases: list[BenchmarkCase]) -> dict[str, dict[str, Measurement]]:
            asked.extend(cases)
            return tuner.known(cases)

    machine: Any = Measuring()
    one = converting_seconds(case, core)
    conversions = TimelyConversions(machine, core, predicts=True, least=2 * one)
    for cases in ([case] * times, [adapt_case(_channels_last(56))]):
        for known, found in conversions.measure(cases).items():
            ((_, each),) = found.items()
            expected = next(converting_seconds(case, core) for case in cases if case.key == known)
            assert each.time == pytest.approx(expected)
    assert bool(asked) == measures


@pytest.mark.parametrize(("predicts", "asked"), [(True, 1), (False, 3)])
def test_the_first_plan_s_conversions_tell_what_others_take(predicts: bool, asked: int, tuner: Tuner) -> None:
    """On a machine that takes five times as long as by the model: the four longest of the first round are measured."""
    core, first = core_of(tuner.target), [adapt_case(_channels_last(size)) for size in (8, 10, 12, 14, 28)]
    rounds = [first, [adapt_case(_channels_last(7))], [adapt_case(_channels_last(56))]]
    measured: list[BenchmarkCase] = []

    class Measuring:
        """Measures by the model, and notes what."""

        target, key, known = tuner.target, tuner.key, tuner.known
        times = 0

        def measure(self, cases: list[BenchmarkCase]) -> dict[str, dict[str, Measurement]]:
            self.times += 1
            measured.extend(cases)
            for case in cases:
                _put(tuner, case, tuner.store.hardware, [5 * converting_seconds(case, core)])
            return tuner.known(cases)

    machine: Any = Measuring()
    conversions = TimelyConversions(machine, core, predicts)
    for cases in rounds:
        for case, found in zip(cases, conversions.measure(cases).values(), strict=True):
            ((_, each),) = found.items()
            assert each.time == pytest.approx(5 * converting_seconds(case, core))
    assert machine.times == asked
    assert (measured == first[:0:-1]) == predicts
