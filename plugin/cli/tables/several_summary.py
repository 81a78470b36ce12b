"""Prints the summary of a file with several plans: at the end of its compilation, and of what it says of itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sartor.artifact import SeveralArtifact
from sartor.cli.output.terminal import milliseconds, optional, show_facts, show_json, show_table
from sartor.runtime.manifest import Manifest
from sartor.runtime.several.record import Alternative
from sartor.several.settings import shapes_text
from sartor.tuning.records.plan import Plan
from sartor.tuning.records.plan_set import PlanSet

_COLUMNS = ("device", "level", "shapes", "layers", "predicted ms")


def show_several(artifact: SeveralArtifact, as_json: bool) -> None:
    """Print the summary of a compilation to several plans, as a table or JSON."""
    if as_json:
        show_json(_summary(artifact))
        return
    show_facts(str(artifact.path), _facts(artifact))
    rows = [
        [
            *_row(alternative, plan),
            milliseconds(plan.measured),
            milliseconds(plan.baseline),
            optional(_per_second(alternative, plan), "{:.1f}".format),
            _error(error),
        ]
        for alternative, plan, error in _each(artifact)
    ]
    columns = (*_COLUMNS, "measured ms", "stock IREE ms", "per second", "error")
    show_table("plans", columns, rows, right=(3, 4, 5, 6, 7, 8))


def show_alternatives(manifest: Manifest) -> None:
    """Print the plans that a file says it has."""
    plans = [
        Plan.from_json(alternative.plan or manifest.plan, "a plan of the file") for alternative in manifest.alternatives
    ]
    rows = [_row(alternative, plan) for alternative, plan in zip(manifest.alternatives, plans, strict=True)]
    show_table("plans", _COLUMNS, rows, right=(3, 4))


def show_saved(saved: PlanSet) -> None:
    """Print the plans that were saved of a file with several."""
    rows = [
        [
            plan.plan.target,
            shapes_text(plan.shapes),
            str(len(plan.plan.layers)),
            *map(milliseconds, (plan.plan.predicted, plan.plan.measured, plan.plan.baseline)),
        ]
        for plan in saved.plans
    ]
    columns = ("target", "shapes", "layers", "predicted ms", "measured ms", "stock IREE ms")
    show_table("plans", columns, rows, right=(2, 3, 4, 5))


def _summary(artifact: SeveralArtifact) -> dict[str, Any]:
    """Times are in milliseconds, and null if they were not measured."""
    return {
        "output": str(artifact.path),
        "size_bytes": artifact.size,
        "weight_bytes": artifact.weight_bytes,
        "weights": None if artifact.weights is None else str(artifact.weights),
        "sizes": list(artifact.sizes),
        "plans": [
            {
                "device": alternative.device,
                "level": alternative.level,
                "shapes": {spec.name: list(spec.shape) for spec in alternative.inputs},
                "tuned": plan.measured is not None,
                "layers": len(plan.layers),
                "predicted_ms": None if plan.predicted is None else plan.predicted * 1e3,
                "measured_ms": None if plan.measured is None else plan.measured * 1e3,
                "stock_ms": None if plan.baseline is None else plan.baseline * 1e3,
                "per_second": _per_second(alternative, plan),
                "error": error,
                "layers_compared": layers or None,
            }
            for (alternative, plan, error), layers in zip(_each(artifact), artifact.layers, strict=True)
        ],
    }


def _facts(artifact: SeveralArtifact) -> list[tuple[str, str]]:
    return [
        ("plans", str(len(artifact.plans))),
        *([("any size", "\n".join(artifact.sizes))] if artifact.sizes else []),
        ("file size", f"{artifact.size / 2**20:.2f} MiB"),
        ("weights", f"{artifact.weight_bytes / 2**20:.2f} MiB, {_where(artifact)}"),
        *([("layers one by one", compared)] if (compared := _compared(artifact)) else []),
    ]


def _compared(artifact: SeveralArtifact) -> str:
    """What comparing the layers of plans says, a line for each plan of which something is said."""
    pairs = zip(artifact.manifest.alternatives, artifact.layers, strict=True)
    return "\n".join(f"{part.device} {part.level} {part.shapes}: {layers}" for part, layers in pairs if layers)


def _where(artifact: SeveralArtifact) -> str:
    return "equal ones once for a device" if artifact.weights is None else f"equal ones once, in '{artifact.weights}'"


def _each(artifact: SeveralArtifact) -> Iterator[tuple[Alternative, Plan, float | None]]:
    return zip(artifact.manifest.alternatives, artifact.plans, artifact.errors, strict=True)


def _row(alternative: Alternative, plan: Plan) -> list[str]:
    return [
        alternative.device,
        alternative.level,
        alternative.shapes,
        str(len(plan.layers)),
        milliseconds(plan.predicted),
    ]


def _error(error: float | None) -> str:
    return "not checked" if error is None else f"{error:.2g}"


def _per_second(alternative: Alternative, plan: Plan) -> float | None:
    """Items a second, if the first dimension of the first input is the batch; not of a file for any size."""
    if any(None in spec.shape for spec in alternative.inputs):
        return None
    shape = alternative.inputs[0].shape if alternative.inputs else ()
    batch = shape[0] if shape and shape[0] else 1
    return batch / plan.measured if plan.measured else None
