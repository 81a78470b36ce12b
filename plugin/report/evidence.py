"""What the tuning database contains about the layers of a plan."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field, replace

from sartor.codegen.ir.target import Target
from sartor.devices import CPU
from sartor.tuning.cost_tables.roofline import read_bandwidth
from sartor.tuning.records.hardware import host, processor_of
from sartor.tuning.records.measurement import Measurement, Status, key_threads, runtime_key
from sartor.tuning.records.plan import Plan
from sartor.tuning.store.store import Store
from sartor.tuning.store.tasks import TaskResult, task_results

_HOST = "cpu:host"


@dataclass(frozen=True)
class Evidence:
    """Measurements of one machine.

    Attributes:
        tasks: by task key.
        bandwidth: bytes that the machine reads from memory per second; None if not measured.
        hardware: what was measured; empty if nothing was.
    """

    tasks: Mapping[str, TaskResult] = field(default_factory=dict)
    bandwidth: float | None = None
    hardware: str = ""


def read_evidence(store: Store, plan: Plan, tasks: Iterable[str]) -> Evidence:
    """The measurements of tasks with a plan's target and threads.

    Those of the machine and versions that measured most of the variants in the plan count, which need not be this
    machine: other machines may have measured for it. Of several that measured as many it is this machine with these
    versions, else those with the newest measurement.

    Args:
        store: the database.
        plan: whose target and threads count.
        tasks: keys of the tasks.

    Raises:
        UsageError: if the database cannot be read or is damaged.
        CompileError: if the compiler rejects this machine as a target.
    """
    limit = read_bandwidth(Target.create(CPU)) if plan.target.startswith(_HOST) else None
    wanted = {*tasks, *([limit.case.key] if limit else [])}
    targets = {*plan.target.split(",")}
    places: dict[tuple[str, str], list[Measurement]] = {}
    for measurement in store.measurements():
        key = measurement.key
        target = key.backend.rpartition("/")[0]
        threads = key_threads(target.partition(":")[0], plan.threads)
        if key.task_key in wanted and key.threads == threads and target in targets and not key.is_of_one_call:
            places.setdefault((key.hardware, key.runtime), []).append(measurement)
    if not places:
        return Evidence()
    own, runtime = host().key, runtime_key()
    here = {
        place_measured
        for place_measured in places
        if (processor_of(place_measured[0]), place_measured[1]) == (own, runtime)
    }
    chosen = {(layer.task, layer.variant) for layer in plan.layers}
    place = max(
        places,
        key=lambda place_of_times: (
            _share(chosen, places[place_of_times]),
            place_of_times in here,
            _newest(places[place_of_times]),
        ),
    )
    latest = _of_latest_calls(places[place])
    results = {result.variants[0].key.task: result for result in _on_each_device(latest)}
    measured = {} if limit is None else {limit.case.key: _by_name(results.get(limit.case.key))}
    return Evidence(results, limit.per_second(measured) if limit else None, place[0])


def _share(chosen: Set[tuple[str, str]], measurements: Iterable[Measurement]) -> int:
    """How many of the chosen variants were measured."""
    return len(
        chosen
        & {
            (measurement.key.task_key, measurement.key.variant)
            for measurement in measurements
            if measurement.status is Status.OK
        }
    )


def _of_latest_calls(measurements: Iterable[Measurement]) -> Iterable[Measurement]:
    """Measurements by the tasks' own keys: of a task of open sizes those for the calls that were measured last."""
    by_task: dict[str, dict[str, list[Measurement]]] = {}
    for measurement in measurements:
        by_task.setdefault(measurement.key.task_key, {}).setdefault(measurement.key.task, []).append(measurement)
    for task, by_calls in by_task.items():
        for measurement in max(by_calls.values(), key=_newest):
            yield replace(measurement, key=replace(measurement.key, task=task))


def _newest(measurements: Iterable[Measurement]) -> float:
    return max(measurement.created for measurement in measurements)


def _on_each_device(measurements: Iterable[Measurement]) -> Iterable[TaskResult]:
    """Results by task; of a task that two devices were measured on, the best of both."""
    results: dict[str, TaskResult] = {}
    for task_result in task_results(measurements):
        key = task_result.variants[0].key.task
        results[key] = _joined(results[key], task_result) if key in results else task_result
    return results.values()


def _joined(first: TaskResult, second: TaskResult) -> TaskResult:
    best = min((first, second), key=lambda result: float("inf") if result.seconds is None else result.seconds)
    return TaskResult(best.best, best.seconds, best.stock_seconds, (*first.variants, *second.variants))


def _by_name(result: TaskResult | None) -> dict[str, Measurement]:
    return {} if result is None else {variant.key.variant: variant for variant in result.variants}
