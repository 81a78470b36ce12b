"""The summary at the end of a compilation."""

from __future__ import annotations

from collections import Counter
from typing import Any

from sartor.artifact import Artifact
from sartor.terminal import milliseconds, optional, show_facts, show_json
from sartor.tuning.plan import Plan

WHOLE_MODEL = "whole model by stock IREE"


def routine_of(variant: str) -> str:
    """A variant's descriptor without its parameters."""
    return variant.partition("{")[0]


def show_artifact(artifact: Artifact, as_json: bool) -> None:
    """Print what was compiled: a table, or JSON."""
    if as_json:
        show_json(summary(artifact))
    else:
        show_facts(str(artifact.path), _facts(artifact))


def summary(artifact: Artifact) -> dict[str, Any]:
    """The compilation as JSON data; times are in milliseconds, and null where they were not measured."""
    plan = artifact.plan
    return {
        "output": str(artifact.path),
        "size_bytes": artifact.size,
        "external_weights": None if artifact.weights is None else str(artifact.weights),
        "target": plan.target,
        "threads": plan.threads,
        "unsplit": plan.unsplit,
        "layers": len(plan.layers),
        "routines": _routines(plan),
        "adapts": len(plan.adapts),
        "solver": plan.solver,
        "optimal": plan.optimal,
        "predicted_ms": _in_ms(plan.predicted),
        "measured_ms": _in_ms(plan.measured),
        "stock_ms": _in_ms(plan.baseline),
        "speedup": _speedup(plan),
        "peak_gflops": None if plan.peak is None else plan.peak / 1e9,
        "relative_error": artifact.error,
    }


def _routines(plan: Plan) -> dict[str, int]:
    return dict(Counter(routine_of(layer.variant) for layer in plan.layers).most_common())


def _in_ms(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1e3


def _speedup(plan: Plan) -> float | None:
    return plan.baseline / plan.measured if plan.baseline and plan.measured else None


def _facts(artifact: Artifact) -> list[tuple[str, str]]:
    plan = artifact.plan
    routines = [f"{count} x {name}" for name, count in _routines(plan).items()]
    facts = [
        ("layers", WHOLE_MODEL if plan.unsplit else str(len(plan.layers))),
        ("routines", "\n".join(routines)),
        ("adapts", "" if plan.unsplit else str(len(plan.adapts))),
        ("predicted ms", milliseconds(plan.predicted)),
        ("measured ms", milliseconds(plan.measured)),
        ("stock IREE ms", milliseconds(plan.baseline)),
        ("speed-up over stock", optional(_speedup(plan), "{:.2f}".format)),
        ("relative error to ONNX Runtime", optional(artifact.error, "{:.2g}".format)),
        ("file size", f"{artifact.size / 2**20:.2f} MiB"),
        ("weights", "" if artifact.weights is None else str(artifact.weights)),
    ]
    return [fact for fact in facts if fact[1]]
