"""The contents of a report as JSON data, which the page's scripts draw."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import version
from statistics import median, quantiles
from typing import Any

from sartor.codegen.ir.variants.candidates import Rejection
from sartor.codegen.ir.variants.descriptor import device_in, without_parameters
from sartor.first_inference.timeline import bars_of
from sartor.report.candidates import candidates_of
from sartor.report.difference import Change, compare_plans
from sartor.report.subject import Subject
from sartor.tuning.records.network import NetworkLayer
from sartor.tuning.records.plan import LayerChoice
from sartor.tuning.store.tasks import TaskResult

FORMAT = 1
STOCK = "the whole model by stock IREE"


def contents_of(subjects: Sequence[Subject]) -> dict[str, Any]:
    """The data of a report on one module, or on two that are compared."""
    changes = compare_plans(*(subject.plan for subject in subjects)) if len(subjects) == 2 else ()
    return {
        "format": FORMAT,
        "sartor": version("sartor"),
        "models": [_model(subject) for subject in subjects],
        "changes": [_change(change) for change in changes],
    }


def _model(subject: Subject) -> dict[str, Any]:
    plan, manifest = subject.plan, subject.manifest
    cases: dict[tuple[str, str | None], int] = {}
    rejections: defaultdict[str, list[Rejection]] = defaultdict(list)
    for rejection in subject.rejections:
        rejections[rejection.task].append(rejection)
    layers = _layers(subject, cases)
    reasons = {
        rejection.reason: index
        for index, rejection in enumerate({rejection.reason: rejection for rejection in subject.rejections}.values())
    }
    tasks = subject.evidence.tasks
    return {
        "name": subject.name,
        "model": manifest.model,
        "facts": _facts(subject),
        "unsplit": plan.unsplit,
        "inputs": [{"name": spec.name, "type": str(spec)} for spec in manifest.inputs],
        "outputs": [{"name": output.name, "type": str(output)} for output in manifest.outputs],
        "returned": [list(output) for output in subject.network.outputs] if subject.network else [],
        "layers": layers,
        "adapts": [asdict(adapt) for adapt in plan.adapts],
        "cases": [_case(tasks.get(task), chosen, rejections[task], reasons) for task, chosen in cases],
        "reasons": list(reasons),
        "totals": _totals(subject),
        "times": [_times(name, samples) for name, samples in subject.times.items()],
        "bySize": [{"sizes": dict(taken.sizes), "seconds": dict(taken.seconds)} for taken in subject.by_size],
        "cold": [
            asdict(bar) for (name, state), run in subject.cold.items() for bar in bars_of(f"{name}, {state}", run)
        ],
        "compared": [asdict(compared) for compared in plan.compared],
        "asked": bool(subject.rejections),
    }


def _case(
    result: TaskResult | None, chosen: str | None, rejections: Sequence[Rejection], reasons: Mapping[str, int]
) -> dict[str, Any]:
    """Candidates, and routines with the number of their reason: there are many of them, and few reasons."""
    return {
        "stock": None if result is None else result.stock_seconds,
        "candidates": [asdict(candidate) for candidate in candidates_of(result, chosen)],
        "rejected": [[rejection.routine, reasons[rejection.reason]] for rejection in rejections],
    }


def _layers(subject: Subject, cases: dict[tuple[str, str | None], int]) -> list[dict[str, Any]]:
    """The layers of the network with the plan's choices; ``cases`` gets a number for each task and choice."""
    chosen = {layer.layer: layer for layer in subject.plan.layers}
    layers = subject.network.layers if subject.network else tuple(map(_without_tensors, subject.plan.layers))
    live = subject.network.live_bytes if subject.network else (None,) * len(layers)
    return [
        _layer(subject, layer, chosen.get(layer.name), bytes_then, cases)
        for layer, bytes_then in zip(layers, live, strict=True)
    ]


def _without_tensors(choice: LayerChoice) -> NetworkLayer:
    """A layer of a module that did not record its network."""
    return NetworkLayer(choice.layer, choice.nodes, "", choice.task, (), (), (), ())


def _layer(
    subject: Subject,
    layer: NetworkLayer,
    choice: LayerChoice | None,
    live: int | None,
    cases: dict[tuple[str, str | None], int],
) -> dict[str, Any]:
    variant = choice.variant if choice else None
    errors = subject.errors.get(layer.name)
    return {
        "name": layer.name,
        "nodes": list(layer.nodes),
        "kind": layer.kind,
        "variant": variant,
        "routine": STOCK if variant is None else without_parameters(variant).partition(":")[2],
        "device": subject.manifest.devices[0] if variant is None else device_in(variant),
        "dtype": choice.dtype if choice else "",
        "seconds": choice.seconds if choice else None,
        "inPlace": choice.in_place if choice else None,
        "operations": choice.operations if choice else 0,
        "rounding": choice.error if choice else None,
        "saved": choice.saved if choice else None,
        "errors": None if errors is None else {name: _finite(value) for name, value in asdict(errors).items()},
        "live": live,
        "traffic": layer.traffic or None,
        "changes": layer.changes or None,
        "inputs": [list(input_) for input_ in layer.inputs],
        "reads": [asdict(read) for read in layer.reads],
        "results": [asdict(result) for result in layer.results],
        "weights": [asdict(weight) for weight in layer.weights],
        "case": cases.setdefault((layer.task, variant), len(cases)),
    }


def _finite(value: float | None) -> float | None:
    """An error as JSON has it: of an output with NaN it is infinite."""
    return value if value is not None and math.isfinite(value) else None


def _totals(subject: Subject) -> dict[str, Any]:
    plan = subject.plan
    weights = (
        sum(weight.bytes for layer in subject.network.layers for weight in layer.weights) if subject.network else None
    )
    return {
        "predicted": plan.predicted,
        "measured": plan.measured,
        "stock": plan.baseline,
        "first": plan.first,
        "memory": plan.memory,
        "weights": weights,
        "peak": plan.peak,
        "bandwidth": subject.evidence.bandwidth,
        "threads": plan.threads,
        "byThreads": [list(by_thread) for by_thread in plan.by_threads],
    }


def _times(name: str, samples: Sequence[float]) -> dict[str, Any]:
    low, _, high = quantiles(samples, n=4, method="inclusive") if len(samples) > 1 else [samples[0]] * 3
    return {"name": name, "median": median(samples), "low": low, "high": high, "least": min(samples)}


def _facts(subject: Subject) -> list[list[str]]:
    plan, manifest = subject.plan, subject.manifest
    facts: Mapping[str, str] = {
        "model": manifest.model,
        "target": plan.target,
        "tuned for threads": str(plan.threads),
        "objective": plan.objective,
        "solver": "" if plan.unsplit else f"{plan.solver}, {'optimal' if plan.optimal else 'not proven optimal'}",
        "measured on": subject.evidence.hardware,
        "versions": f"Sartor {manifest.sartor_version}, IREE {manifest.iree_version}",
        "SHA-256 of the prepared model": manifest.model_sha256,
        **subject.others,
    }
    return [[name, value] for name, value in facts.items() if value]


def _change(change: Change) -> dict[str, Any]:
    sides = [{**asdict(side), "total": side.total} for side in (change.first, change.second)]
    return {"nodes": list(change.nodes), "differs": change.differs, "cost": change.cost, "sides": sides}
