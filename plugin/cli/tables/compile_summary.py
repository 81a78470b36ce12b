"""Prints the summary at the end of a compilation."""

from __future__ import annotations

import re
import shlex
from dataclasses import asdict
from typing import Any

from sartor.artifact import Artifact
from sartor.cli.output.terminal import milliseconds, optional, show_facts, show_json
from sartor.cli.tables.compared_plans import compared_json, show_compared
from sartor.cli.tables.pareto_table import front_json, show_front
from sartor.cli.tables.routine_counts import rounded_rows, routine_counts, some_of, stock_time
from sartor.devices import CPU
from sartor.planning.recipe import UNSPLIT_SOLVER
from sartor.runtime.driver.device import device_settings
from sartor.runtime.manifest import read_manifest
from sartor.settings.quantities import show_size
from sartor.tuning.errors.error_measures import RELATIVE
from sartor.tuning.records.plan import Plan

UNSPLIT_MODEL = "whole model by stock IREE"
_TOOL_DEVICES = {CPU: "local-task"}
_ONE_THREAD = "local-sync"


def show_artifact(artifact: Artifact, as_json: bool) -> None:
    """Print the summary of a compilation, as a table or JSON."""
    if as_json:
        show_json(summary(artifact))
    else:
        show_facts(str(artifact.path), _facts(artifact))
        show_compared(artifact.plan)
        if artifact.pareto is not None:
            show_front(artifact.pareto)


def summary(artifact: Artifact) -> dict[str, Any]:
    """The summary as JSON data; times are in milliseconds, and null if they were not measured."""
    plan = artifact.plan
    return {
        "output": str(artifact.path),
        "size_bytes": artifact.size,
        "external_weights": None if artifact.weights is None else str(artifact.weights),
        "target": plan.target,
        "threads": plan.threads,
        "unsplit": plan.unsplit,
        "layers": len(plan.layers),
        "routines": routine_counts(plan),
        "stock_share": stock_time(plan).share,
        "stock_layers": list(stock_time(plan).layers),
        "rounded_layers": list(rounded_rows(plan)),
        "adapts": len(plan.adapts),
        "objective": plan.objective,
        "solver": plan.solver,
        "optimal": plan.optimal,
        "gap": plan.gap,
        "predicted_ms": _in_ms(plan.predicted),
        "basis": plan.basis,
        "measured_ms": _in_ms(plan.measured),
        "stock_ms": _in_ms(plan.baseline),
        "stock_estimate_ms": _in_ms(plan.stock_estimate),
        "workers": plan.workers,
        "by_threads_ms": {str(count): seconds * 1e3 for count, seconds in plan.by_threads},
        "compared": compared_json(plan),
        "speedup": _speedup(plan),
        "first_ms": _in_ms(plan.first),
        "memory_bytes": plan.memory,
        "peak_gflops": None if plan.peak is None else plan.peak / 1e9,
        "error": artifact.error,
        "relative_error": artifact.error if artifact.measure == RELATIVE else None,
        "error_measure": str(artifact.measure),
        "allowed_error": artifact.allowed,
        "layers_compared": artifact.layers or None,
        "samples": artifact.samples,
        "unchecked_outputs": list(artifact.unchecked),
        "reference": artifact.reference or None,
        "unvouched": list(artifact.unvouched),
        "others_processors": artifact.others,
        "states": [asdict(state) for state in read_manifest(artifact.path).states],
        "run": run_command(artifact),
        "pareto": front_json(artifact.pareto),
        "successor": _successor_json(artifact),
        "sizes": list(artifact.sizes),
        "calls": [{"sizes": call.by_name, "share": call.share} for call in artifact.calls],
    }


def _successor_json(artifact: Artifact) -> dict[str, Any] | None:
    """The plan for later inferences, if there is one."""
    plan = artifact.successor
    if plan is None:
        return None
    return {
        "layers": len(plan.layers),
        "routines": routine_counts(plan),
        "predicted_ms": _in_ms(plan.predicted),
        "measured_ms": _in_ms(plan.measured),
        "error": artifact.successor_error,
        "layers_compared": artifact.successor_layers or None,
        "added_weight_bytes": artifact.added_bytes,
    }


def proof(plan: Plan) -> str:
    """The solver and what it proved; empty for the unsplit model, which no solver selected."""
    if plan.unsplit or plan.solver == UNSPLIT_SOLVER:
        return ""
    if plan.optimal:
        return f"{plan.solver}, optimal"
    return f"{plan.solver}, " + ("not proven optimal" if plan.gap is None else f"within {plan.gap:.2%} of the optimum")


def shown_stock(plan: Plan) -> str:
    """The time of the model that IREE compiles whole, or what is known of it if it was not built."""
    if plan.stock_estimate is None:
        return milliseconds(plan.baseline)
    return f"about {milliseconds(plan.stock_estimate)} by its layers; not built"


def _in_ms(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1e3


def _speedup(plan: Plan) -> float | None:
    return plan.baseline / plan.measured if plan.baseline and plan.measured else None


def _facts(artifact: Artifact) -> list[tuple[str, str]]:
    plan = artifact.plan
    routines = [f"{count} x {name}" for name, count in routine_counts(plan).items()]
    facts = [
        ("layers", UNSPLIT_MODEL if plan.unsplit else str(len(plan.layers))),
        ("routines", "\n".join(routines)),
        ("in stock code", stock_time(plan).sentence),
        ("rows rounded to 8 bits", some_of(rounded_rows(plan))),
        ("adapts", "" if plan.unsplit else str(len(plan.adapts))),
        ("solver", proof(plan)),
        ("any size", "\n".join(artifact.sizes)),
        ("times are the mean of", "\n".join(f"{call.share:.1%} {call.named}" for call in artifact.calls if call.share)),
        ("predicted ms", milliseconds(plan.predicted)),
        ("times", plan.basis),
        ("measured ms", milliseconds(plan.measured)),
        ("stock IREE ms", shown_stock(plan)),
        ("ms by threads", "\n".join(f"{count}: {milliseconds(seconds)}" for count, seconds in plan.by_threads)),
        ("speed-up over stock", optional(_speedup(plan), "{:.2f}".format)),
        ("first inference ms", milliseconds(plan.first)),
        ("memory", "" if plan.memory is None else show_size(plan.memory)),
        (artifact.named_error, optional(artifact.error, "{:.2g}".format)),
        ("largest allowed error", optional(artifact.allowed, "{:.2g}".format)),
        ("layers one by one", artifact.layers),
        ("measured on samples", str(artifact.samples) if artifact.samples > 1 else ""),
        ("not checked", "\n".join(artifact.unchecked)),
        ("not checked against an independent reference", "\n".join(artifact.unvouched)),
        ("processors that others took", f"{artifact.others:.1f}" if artifact.others else ""),
        ("file size", f"{artifact.size / 2**20:.2f} MiB"),
        ("weights", "" if artifact.weights is None else str(artifact.weights)),
        *_successor_facts(artifact),
        ("states kept between calls", "\n".join(_states(artifact))),
        ("run it with", shlex.join(run_command(artifact))),
    ]
    return [fact for fact in facts if fact[1]]


def _states(artifact: Artifact) -> list[str]:
    """The states that the module keeps, and how to have none."""
    states = read_manifest(artifact.path).described_states
    return [*states, "(with --no-state callers pass and take them)"] if states else []


def _successor_facts(artifact: Artifact) -> list[tuple[str, str]]:
    """The plan for later inferences, and what it costs."""
    plan = artifact.successor
    if plan is None:
        return []
    return [
        ("later inferences ms", milliseconds(plan.measured)),
        (f"their {artifact.measure} error", optional(artifact.successor_error, "{:.2g}".format)),
        ("their layers one by one", artifact.successor_layers),
        ("weights that only they read", f"{artifact.added_bytes / 2**20:.2f} MiB"),
    ]


def run_command(artifact: Artifact) -> list[str]:
    """How stock IREE runs the module, on inputs that have to be replaced by real ones; on two devices Sartor does."""
    manifest = read_manifest(artifact.path)
    if manifest.segments:
        return ["sartor", "run", str(artifact.path)]
    signature = manifest.stateful_signature if manifest.caches else manifest.signature
    weights = {} if artifact.weights is None else dict.fromkeys(manifest.parameters, artifact.weights)
    device = _TOOL_DEVICES.get(manifest.devices[0], manifest.devices[0])
    topology, threads = tuple[str, ...](), manifest.workers or artifact.plan.threads
    if device == _TOOL_DEVICES[CPU] and threads == 1:
        device = _ONE_THREAD
    elif device == _TOOL_DEVICES[CPU]:
        topology = device_settings(threads=threads).flags
    return [
        "iree-run-module",
        f"--device={device}",
        *topology,
        f"--module={artifact.path}",
        *(f"--parameters={scope}={path}" for scope, path in weights.items()),
        f"--function={signature.entry}",
        *(f"--input=@{_file_name(spec.name)}.npy" for spec in signature.inputs),
    ]


def _file_name(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)
