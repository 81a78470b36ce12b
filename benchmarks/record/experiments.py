"""The experiments: which competitors run on a network, by what they are built, and what is kept of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType

import numpy as np

from benchmarks.contest import (
    Contest,
    Opener,
    Timed,
    calibration_samples,
    open_bound_onnxruntime,
    open_bound_sartor,
    open_onnxruntime,
    open_openvino,
    open_openvino_int8,
    open_sartor,
    open_stock,
    time_in_processes,
)
from benchmarks.peers import MANUAL, STOCK_FLAGS
from benchmarks.record.cold import measure as first_inferences
from benchmarks.record.neighbour import busy_neighbour
from benchmarks.record.results import ERROR_LIMIT, Entry
from benchmarks.record.task import Found, Task
from benchmarks.record.tuning import measure_tuning
from benchmarks.untuned import compile_untuned
from benchmarks.zoo import NETWORKS
from sartor.artifact import Artifact
from sartor.config import CompileConfig
from sartor.errors import SartorError
from sartor.pipeline import compile_model
from sartor.policies import Precision
from sartor.runtime.driver.amx import MATRIX_FEATURES
from sartor.tuning.records.hardware import host

OURS, ORT, OPENVINO = "Sartor", "ONNX Runtime", "OpenVINO"
STOCK, BEST_STOCK = "IREE", "IREE, best flags"
BOUND, BOUND_ORT = "Sartor, bound", "ONNX Runtime, bound"
OPENVINO_BF16, OPENVINO_INT8, OPENVINO_MIXED = "OpenVINO bf16", "OpenVINO int8", "OpenVINO int8 and bf16"
UNTUNED = "untuned"
ALONE, BESIDE, DECIDED_AGAIN = "tuned alone", "tuned beside a neighbour", "compiled again, alone"
BUDGETS = ("0.01", "OpenVINO's")
PRECISIONS = {"bf16": Precision.BF16, "int8": Precision.INT8, "hybrid": Precision.MIXED}
_SAMPLES = 16
_EVALUATED = 8


@dataclass(frozen=True)
class Experiment:
    """A kind of measurement: what it does with a network, and the networks that it is for."""

    run: Callable[[Task], Found]
    networks: Sequence[str]


def measure_speed(task: Task) -> Found:
    """Tune a network in f32 with an empty database, and time it beside all others.

    Stock IREE takes part as its manual says, and with the flags that are fastest on this network.
    """
    database = task.file("db")
    database.unlink(missing_ok=True)
    module = task.file("vmfb")
    artifact, _ = _compiled(task, module, CompileConfig(threads=task.threads, database=database))
    flags, failures = _best_flags(task)
    rivals: dict[str, Opener] = {
        OURS: partial(open_sartor, module),
        ORT: open_onnxruntime,
        OPENVINO: partial(open_openvino, "f32"),
        STOCK: partial(open_stock, task.directory, MANUAL),
        BOUND: partial(open_bound_sartor, module),
        BOUND_ORT: open_bound_onnxruntime,
    }
    if flags is not None and flags != MANUAL:
        rivals[BEST_STOCK] = partial(open_stock, task.directory, flags)
    facts: dict[str, dict[str, float | str]] = {OURS: {"megabytes": artifact.size / 1e6, **_predictions(artifact)}}
    if flags is not None:
        facts[BEST_STOCK if flags != MANUAL else STOCK] = {"flags": flags}
    timed = _timed(task, rivals)
    # A model that rounds to integers turns ties to other sides, whoever computes it.
    allowed = dict.fromkeys(rivals, max(ERROR_LIMIT, artifact.allowed or 0.0))
    entries, failed = entries_of(timed, allowed, facts)
    return entries, failures | failed


def measure_precisions(task: Task) -> Found:
    """Compile a network in every precision at several budgets, and time all of them beside OpenVINO's.

    Everyone is calibrated by the same inputs. A budget is a relative error, or the one that OpenVINO has in 8 bits on
    these inputs. Errors are measured on others.
    """
    samples = task.directory / f"{task.model.stem}.samples"
    inputs = calibration_samples(task.model, _SAMPLES)
    samples.mkdir(parents=True, exist_ok=True)
    for number, feeds in enumerate(inputs):
        np.savez(samples / f"{number}.npz", **feeds)  # type: ignore[arg-type]
    database = task.file("precision.db")
    database.unlink(missing_ok=True)
    config = CompileConfig(threads=task.threads, database=database)
    rivals: dict[str, Opener] = dict(_precise_peers(task))
    rivals[UNTUNED] = partial(open_sartor, task.module(UNTUNED))
    compile_untuned(task.model, task.module(UNTUNED), config)
    _compiled(task, task.module("f32"), config)
    rivals["f32"] = partial(open_sartor, task.module("f32"))
    budgets, failures = _budgets(task)
    allowed, facts = dict[str, float](), dict[str, dict[str, float | str]]()
    for budget, limit in budgets.items():
        for name, precision in PRECISIONS.items():
            who = f"{name} within {budget}"
            chosen = replace(config, precision=precision, max_error=limit, calibration=samples)
            try:
                artifact, seconds = _compiled(task, task.module(who), chosen)
            except SartorError as error:
                failures[who] = str(error)
                continue
            rivals[who], allowed[who] = partial(open_sartor, task.module(who)), limit
            facts[who] = {"budget": limit, "compile seconds": seconds, "layers": _types(artifact)}
    entries, failed = entries_of(_timed(task, rivals, _EVALUATED), allowed, facts)
    return entries, failures | failed


def measure_neighbour(task: Task) -> Found:
    """Tune a network alone and beside a program that keeps a core busy, and time both plans, alone.

    The second database is used once more, alone, as measurements that were disturbed are to be made again.
    """
    alone, beside = task.file("alone.db"), task.file("beside.db")
    alone.unlink(missing_ok=True)
    beside.unlink(missing_ok=True)

    def compiled(who: str, database: Path) -> float:
        return _compiled(task, task.module(who), CompileConfig(threads=task.threads, database=database))[1]

    seconds = {ALONE: compiled(ALONE, alone)}
    with busy_neighbour():
        seconds[BESIDE] = compiled(BESIDE, beside)
    seconds[DECIDED_AGAIN] = compiled(DECIDED_AGAIN, beside)
    rivals: dict[str, Opener] = {who: partial(open_sartor, task.module(who)) for who in seconds}
    return entries_of(_timed(task, rivals), facts={who: {"compile seconds": second} for who, second in seconds.items()})


EXPERIMENTS: Mapping[str, Experiment] = {
    "zoo": Experiment(measure_speed, tuple(NETWORKS)),
    "models": Experiment(measure_speed, ()),
    "tuning": Experiment(measure_tuning, tuple(NETWORKS)),
    "neighbour": Experiment(measure_neighbour, ("resnet50", "mobilenet_v2", "bert")),
    "first": Experiment(first_inferences.measure_first, first_inferences.NETWORKS),
    "cold": Experiment(first_inferences.measure_cold, tuple(NETWORKS)),
    "precision": Experiment(
        measure_precisions, ("vgg16", "resnet50", "mobilenet_v2", "mobilenet_v3", "outlier_encoder")
    ),
}
"""All experiments by name; those without networks are for the ONNX files that one names."""


def _compiled(task: Task, output: Path, config: CompileConfig) -> tuple[Artifact, float]:
    begin = time.perf_counter()
    artifact = compile_model(task.model, output, config)
    return artifact, time.perf_counter() - begin


def _predictions(artifact: Artifact) -> dict[str, float | str]:
    """The prediction from layers timed alone, as it was before it was corrected, and what the network took then."""
    plan = artifact.plan
    if plan.foreseen is None or plan.measured is None:
        return {}
    return {"foreseen seconds": plan.foreseen, "then measured seconds": plan.measured}


def _best_flags(task: Task) -> tuple[str | None, dict[str, str]]:
    """The fastest flags whose results are right, and why others failed."""
    rivals = {name: partial(open_stock, task.directory, name) for name in STOCK_FLAGS}
    (timed,) = time_in_processes(Contest(task.model, task.threads, rivals, seconds=1.0), 1)
    right = {name: min(timing.samples) for name, timing in timed.timings.items() if timing.error <= ERROR_LIMIT}
    failures = {f"{STOCK}, {name}": reason for name, reason in timed.failures.items()}
    return min(right, key=lambda name: right[name], default=None), failures


def _precise_peers(task: Task) -> Iterator[tuple[str, Opener]]:
    yield ORT, open_onnxruntime
    yield OPENVINO, partial(open_openvino, "f32")
    yield OPENVINO_BF16, partial(open_openvino, "bf16")
    yield OPENVINO_INT8, partial(open_openvino_int8, task.directory, _SAMPLES, "f32")
    if set(MATRIX_FEATURES) & set(host().features):
        yield OPENVINO_MIXED, partial(open_openvino_int8, task.directory, _SAMPLES, "bf16")


def _budgets(task: Task) -> tuple[dict[str, float], dict[str, str]]:
    """The budgets by name; OpenVINO's is its error in 8 bits on the inputs that calibrate."""
    fixed, own = BUDGETS
    rival = {OPENVINO_INT8: partial(open_openvino_int8, task.directory, _SAMPLES, "f32")}
    (timed,) = time_in_processes(Contest(task.model, task.threads, rival, 0.0, evaluated=_SAMPLES, evaluated_from=0), 1)
    if reason := timed.failures.get(OPENVINO_INT8):
        return {fixed: float(fixed)}, {f"budget of {own}": reason}
    return {fixed: float(fixed), own: timed.timings[OPENVINO_INT8].error}, {}


def _timed(task: Task, rivals: Mapping[str, Opener], evaluated: int = 1) -> list[Timed]:
    contest = Contest(task.model, task.threads, rivals, task.effort.seconds, evaluated)
    return time_in_processes(contest, task.effort.processes)


def entries_of(
    timed: Sequence[Timed],
    allowed: Mapping[str, float] = MappingProxyType({}),
    facts: Mapping[str, Mapping[str, float | str]] = MappingProxyType({}),
) -> Found:
    """Entries of those that ran in every process, and why others failed; errors are the largest of any process.

    Args:
        timed: the results of each process.
        allowed: errors with which competitors count, by name, where it is not the usual one.
        facts: what else is known of competitors, by name.
    """
    failures = {name: reason for each in timed for name, reason in each.failures.items()}
    names = [name for name in timed[0].timings if all(name in each.timings for each in timed)]
    entries = {
        name: Entry(
            tuple(each.timings[name].samples for each in timed),
            max(each.timings[name].error for each in timed),
            _allowed(name, allowed),
            facts.get(name, {}),
        )
        for name in names
    }
    return entries, failures


def _allowed(name: str, allowed: Mapping[str, float]) -> float | None:
    """The largest error with which a competitor is right; None if it is not judged.

    A peer in lower precision errs as it does, and its error is shown beside its time. ONNX Runtime gives the reference
    itself, in which values of its Sigmoid, which is inexact for very negative numbers, are replaced by exact ones.
    """
    if name in (ORT, BOUND_ORT):
        return None
    return allowed.get(name, None if name.startswith(f"{OPENVINO} ") else ERROR_LIMIT)


def _types(artifact: Artifact) -> str:
    types = [layer.dtype for layer in artifact.plan.layers]
    return ", ".join(f"{types.count(each)} {each}" for each in sorted(set(types)))
