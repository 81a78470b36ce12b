"""Prints the summary of a file with several plans: at the end of its compilation, and of what it says of itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sartor.artifact import SeveralArtifact
from sartor.cli.output.terminal import milliseconds, optional, show_facts, show_json, show_table
from sartor.runtime.manifest import Manifest
from sartor.runtime.several.record import Alternative
from sartor.tuning.records.plan import Plan

_COLUMNS = ("device", "level", "shapes", "layers", "predicted ms")


def show_several(artifact: SeveralArtifact, as_json: bool) -> None:
    """Print the summary of a compilation to several plans, as a table or JSON."""
    if as_json:
        show_json(_summary(artifact))
        return
    show_facts(str(artifact.path), _facts(artifact))
    rows = [
        [
            *_row(each, plan),
            milliseconds(plan.measured),
            optional(_per_second(each, plan), "{:.1f}".format),
            _error(error),
        ]
        for each, plan, error in _each(artifact)
    ]
    columns = (*_COLUMNS, "measured ms", "per second", "error")
    show_table("plans", columns, rows, right=(3, 4, 5, 6, 7))


def show_alternatives(manifest: Manifest) -> None:
    """Print the plans that a file says it has."""
    plans = [Plan.from_json(each.plan or manifest.plan, "a plan of the file") for each in manifest.alternatives]
    rows = [_row(each, plan) for each, plan in zip(manifest.alternatives, plans, strict=True)]
    show_table("plans", _COLUMNS, rows, right=(3, 4))


def _summary(artifact: SeveralArtifact) -> dict[str, Any]:
    """Times are in milliseconds, and null if they were not measured."""
    return {
        "output": str(artifact.path),
        "size_bytes": artifact.size,
        "weight_bytes": artifact.weight_bytes,
        "plans": [
            {
                "device": each.device,
                "level": each.level,
                "shapes": {spec.name: list(spec.shape) for spec in each.inputs},
                "tuned": plan.measured is not None,
                "layers": len(plan.layers),
                "predicted_ms": None if plan.predicted is None else plan.predicted * 1e3,
                "measured_ms": None if plan.measured is None else plan.measured * 1e3,
                "per_second": _per_second(each, plan),
                "error": error,
            }
            for each, plan, error in _each(artifact)
        ],
    }


def _facts(artifact: SeveralArtifact) -> list[tuple[str, str]]:
    return [
        ("plans", str(len(artifact.plans))),
        ("file size", f"{artifact.size / 2**20:.2f} MiB"),
        ("weights", f"{artifact.weight_bytes / 2**20:.2f} MiB, equal ones once for a device"),
    ]


def _each(artifact: SeveralArtifact) -> Iterator[tuple[Alternative, Plan, float | None]]:
    return zip(artifact.manifest.alternatives, artifact.plans, artifact.errors, strict=True)


def _row(each: Alternative, plan: Plan) -> list[str]:
    return [each.device, each.level, each.shapes, str(len(plan.layers)), milliseconds(plan.predicted)]


def _error(error: float | None) -> str:
    return "not checked" if error is None else f"{error:.2g}"


def _per_second(each: Alternative, plan: Plan) -> float | None:
    """Items a second, if the first dimension of the first input is the batch."""
    shape = each.inputs[0].shape if each.inputs else ()
    batch = shape[0] if shape and shape[0] else 1
    return batch / plan.measured if plan.measured else None
