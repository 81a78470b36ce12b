"""``sartor routines``: list the routines, and their candidates for a model's layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from sartor.cli.options.common import (
    ArchOption,
    BindOption,
    CpuOption,
    JsonOption,
    ShapeOption,
    TargetOption,
    existing_file,
    read_bindings,
    read_shapes,
    read_target,
)
from sartor.cli.options.constraints import PrecisionOption, read_precision
from sartor.cli.output.terminal import show_json, show_table, tuning_progress
from sartor.cli.tables.routine_tables import show_formats, show_ledgers
from sartor.codegen.ir.graph import Childnet
from sartor.codegen.ir.layer import Layer
from sartor.codegen.ir.variants.candidates import Candidates
from sartor.codegen.ir.variants.routine import Routine, Storing
from sartor.codegen.routines import ROUTINES
from sartor.config import CompileConfig
from sartor.costing.candidates import find_candidates
from sartor.costing.ledger import LayerLedger, ledgers_of
from sartor.devices import CPU, is_cpu
from sartor.errors import UsageError
from sartor.frontend.loading import import_network, open_workers
from sartor.frontend.value_ranges import with_children
from sartor.precision.calibration import calibrate
from sartor.precision.permitted_rounding import heeding_permissions


def routines(
    model: Annotated[Path | None, typer.Argument(metavar="[MODEL.onnx]", help="Ask about this model's layers.")] = None,
    target: TargetOption = CPU,
    cpu: CpuOption = None,
    arch: ArchOption = None,
    shape: ShapeOption = None,
    bind: BindOption = None,
    layer: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Show what a compilation would measure for this layer, and who dropped all else."
        ),
    ] = None,
    precision: PrecisionOption = None,
    formats: Annotated[
        bool, typer.Option("--formats", help="Show which algorithms exist in which formats, and why not in others.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """List the routines and what they need of the CPU.

    For a model: candidates of every layer, fusion and child, why others do not apply, and which layers have no kernel.
    For a layer, whose name may have wildcards: its candidates with predicted times, and who dropped which others, why.
    """
    of_layers: dict[str, object] = {"--layer": layer, "--precision": precision}
    of_models = {"--target": not is_cpu(target), "--cpu": cpu, "--arch": arch, "--shape": shape, "--bind": bind}
    if model is None:
        _refuse_options(of_models | of_layers)
        show_formats(as_json=json) if formats else _show_routines(json)
        return
    if formats:
        raise UsageError("--formats is about all routines, whatever the model; leave the model out")
    if layer is None and precision is not None:
        raise UsageError("--precision is for what a compilation would measure for a layer; name one with --layer")
    config = CompileConfig(
        target=read_target(target, cpu, arch),
        shapes=read_shapes(shape),
        bindings=read_bindings(bind),
        precision=read_precision(precision),
        heeds_permissions=precision is None,
        jobs=1,
        finds_states=False,
    )
    if layer is None:
        _show_layers(model, _ask(existing_file(model), config), json)
    else:
        show_ledgers(model, _ledgers(existing_file(model), config, layer), json)


def _refuse_options(given: Mapping[str, object]) -> None:
    """Refuse options about a model's layers without a model.

    Raises:
        UsageError: one is given.
    """
    for name, value in given.items():
        if value:
            raise UsageError(f"{name} is for the layers of a model; name a model, or leave {name} out")


def _ask(model: Path, config: CompileConfig) -> list[dict[str, Any]]:
    with tuning_progress() as progress, open_workers(config.target, config.jobs) as pool:
        imported = import_network(model, config.importing, pool, progress)
    candidates = find_candidates(imported, config.planning)
    childnets = tuple(imported.graph.all_childnets())
    return [_answers(layer, candidates, childnets) for layer in imported.graph.all_layers()]


def _ledgers(model: Path, config: CompileConfig, layer: str) -> list[LayerLedger]:
    with tuning_progress() as progress, open_workers(config.target, config.jobs) as pool:
        imported = import_network(model, config.importing, pool, progress)
        config = heeding_permissions(config, imported)
        if config.precision.quantises_values:
            ranges = calibrate(imported, config.calibrating, pool, progress).ranges.values
            imported = replace(imported, ranges=with_children(imported.graph, {**ranges, **imported.ranges}))
    return ledgers_of(imported, config.planning, layer)


def _answers(layer: Layer, candidates: Candidates, childnets: Sequence[Childnet]) -> dict[str, Any]:
    key = layer.task.key
    return {
        "layer": layer.name,
        "nodes": list(layer.nodes),
        "kind": layer.task.kind.value,
        "has_kernel": any(variant.implementation.kernel is not None for variant in candidates.variants[key]),
        "candidates": [
            *(variant.descriptor for variant in candidates.variants[key]),
            *(childnet.descriptor for childnet in childnets if childnet.layer == layer.name),
        ],
        "rejected": [
            {"routine": rejection.routine, "reason": rejection.reason}
            for rejection in candidates.rejections
            if rejection.task == key
        ],
    }


def _show_routines(as_json: bool) -> None:
    listed = list({(routine.name, _type(routine)): _told(routine) for routine in ROUTINES}.values())
    if as_json:
        show_json({"routines": listed})
    else:
        rows = [[routine[name] or "" for name in ("name", "type", "needs", "what")] for routine in listed]
        show_table("routines", ("routine", "type", "needs of the CPU", "what it does"), rows)


def _told(routine: Routine) -> dict[str, str | None]:
    instruction = routine.traits.instruction
    return {
        "name": routine.name,
        "type": _type(routine),
        "needs": None if instruction is None else instruction.requirement or None,
        "what": (type(routine).__doc__ or "").partition("\n")[0],
    }


def _type(routine: Routine) -> str | None:
    """The narrower type that a routine stores values in, or rounds filters alone to; None for the model's own."""
    filters = None if routine.traits.precision is None else routine.traits.weights
    return (routine.storage if isinstance(routine, Storing) else None) or filters


def _show_layers(model: Path, answers: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        show_json({"model": str(model), "layers": answers})
        return
    rows = [
        [
            answer["layer"],
            answer["kind"],
            "\n".join(answer["candidates"]),
            "\n".join(f"{one['routine']}: {one['reason']}" for one in answer["rejected"]),
        ]
        for answer in answers
    ]
    show_table(str(model), ("layer", "kind", "candidates", "rejected"), rows)
    without = [[answer["layer"], answer["kind"]] for answer in answers if not answer["has_kernel"]]
    if without:
        show_table(f"{len(without)} of {len(answers)} layers have no kernel", ("layer", "kind"), without)
