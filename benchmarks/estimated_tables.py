"""Cost tables of networks that were not measured: times by the routines' analytic models.

Plans by these tables are of the kind that measured tables give, on every machine the same, without hours of tuning.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sartor.codegen.analysis.task_facts import task_facts
from sartor.codegen.ir.layer import Task
from sartor.codegen.ir.variants.routine import Variant
from sartor.costing.candidates import find_candidates
from sartor.frontend.imported_model import ImportedModel
from sartor.policies import PlanPolicy
from sartor.tuning.cost_tables.tables import Tables
from sartor.tuning.records.measurement import Measurement, MeasurementKey, Status
from sartor.tuning.search.features import analytic_seconds

# Seconds; a measurement is more than zero.
_NOTHING = 1e-9


FindScratch = Callable[[Mapping[str, Any]], dict[int, int]]
"""``scratch_of`` in a worker, given its arguments."""


def estimated_tables(imported: ImportedModel, policy: PlanPolicy, find_scratch: FindScratch | None = None) -> Tables:
    """Tables in which every candidate works and takes as long as its routine's model says.

    Args:
        imported: the model.
        policy: target, precision and pins.
        find_scratch: finds the candidates' scratch memory; None if memory does not count.
    """
    variants = find_candidates(imported, policy, everything=False).variants
    tasks = imported.graph.tasks()
    measured = {
        key: {each.descriptor: _estimated(tasks[key], each, policy.target.threads) for each in own}
        for key, own in variants.items()
    }
    return Tables(variants, measured, scratch=_scratch(variants, policy, find_scratch) if find_scratch else {})


def _scratch(
    variants: Mapping[str, tuple[Variant, ...]], policy: PlanPolicy, find_scratch: FindScratch
) -> dict[tuple[str, str], int]:
    distinct = {(key, each.descriptor): each.implementation for key, own in variants.items() for each in own}
    code = dict(enumerate(distinct.values()))
    found = find_scratch({"implementations": code, "target": policy.target})
    return {name: found[number] for number, name in enumerate(distinct)}


def _estimated(task: Task, variant: Variant, threads: int) -> Measurement:
    key = MeasurementKey(task.key, variant.descriptor, "estimated", "none", threads, "none", variant.device)
    facts = task_facts(task)
    packed = sum(
        packing.type_of(logical).bytes
        for packing, logical in zip(variant.implementation.packings, task.weights, strict=True)
    )
    seconds = max(analytic_seconds(facts, variant.described), _NOTHING)
    return Measurement(key, Status.OK, (seconds,), packed_bytes=packed, facts=facts)
