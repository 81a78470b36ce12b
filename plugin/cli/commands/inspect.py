"""``sartor inspect``: show a module's manifest and plan, or a saved plan."""

from __future__ import annotations

import json as json_format
import logging
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from sartor.cli.options.common import DeviceOption, JsonOption, ModuleArgument
from sartor.cli.options.plan_choice import PlanLevelOption, PlanShapesOption, read_choice
from sartor.cli.options.sizes import SizeOption, sized_inputs
from sartor.cli.output.terminal import milliseconds, show_facts, show_json
from sartor.cli.tables.compared_plans import show_compared
from sartor.cli.tables.compile_summary import shown_stock
from sartor.cli.tables.plan_difference import difference_json, show_difference
from sartor.cli.tables.plan_table import file_rows, module_rows, plan_rows, show_choices, show_segments
from sartor.cli.tables.several_summary import show_alternatives, show_saved
from sartor.errors import UsageError
from sartor.first_inference.cold_record import read_cold
from sartor.first_inference.timeline import Panel, bars_of, draw, layer_bars
from sartor.publishing import check_apart, written
from sartor.report.difference import compare_plans
from sartor.runtime.manifest import Manifest, read_manifest
from sartor.runtime.module import check_module
from sartor.runtime.module_facts import check_weights, one_plan
from sartor.runtime.several.choice import FIRST, PlanChoice
from sartor.tuning.records.plan import Plan
from sartor.tuning.records.plan_set import PlanSet, load_plans

# What fits beside the lanes of a picture.
_NAME_LENGTH = 30
_LOG = logging.getLogger(__name__)


def inspect(
    module: ModuleArgument,
    other: Annotated[
        Path | None, typer.Argument(metavar="[OTHER.vmfb]", help="With --diff, the second module.")
    ] = None,
    diff: Annotated[
        bool, typer.Option("--diff", help="Show by ONNX node which variants of two modules differ, and what it costs.")
    ] = False,
    verify: Annotated[
        bool,
        typer.Option(
            "--verify",
            help="Compare the whole file, and weights beside it, with their checksums; exit code 2 if it differs.",
        ),
    ] = False,
    cold: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.svg",
            help="Draw the first inferences that 'sartor bench --cold --json' wrote to a .json file.",
        ),
    ] = None,
    shape: PlanShapesOption = None,
    size: SizeOption = None,
    device: DeviceOption = None,
    cpu: PlanLevelOption = None,
    json: JsonOption = False,
) -> None:
    """Show a module's manifest and, layer by layer, the plan it was built from; of a .json file the saved plan."""
    choice = read_choice(shape, device, level=cpu)
    if cold is not None:
        if diff or other is not None or verify or json or choice != FIRST:
            raise UsageError("--cold draws the times in a file, and nothing else is shown; leave other options out")
        _draw_cold(module, cold)
        return
    if diff or other is not None:
        _inspect_difference(module, other, diff, verify, choice, json)
        return
    if module.suffix == ".json":
        if verify:
            raise UsageError(f"'{module}' is a saved plan; only a module has checksums")
        _check_unchosen(module, choice)
        if size:
            raise UsageError(f"'{module}' is a saved plan; only a module has sizes")
        _inspect_saved(load_plans(module), str(module), json)
        return
    if verify:
        check_module(module)
    manifest = read_manifest(module)
    if choice != FIRST:
        manifest = one_plan(manifest, choice, module)
    manifest = replace(manifest, inputs=tuple(sized_inputs(module, manifest.inputs, size)))
    checked = [("checksums", _checked(module, manifest))] if verify else []
    if json:
        if size:
            raise UsageError("--json shows the manifest as it is; leave --size out")
        first = manifest.to_json().partition("\n")[0]
        show_json(json_format.loads(first) | ({"network": manifest.network} if manifest.network else {}))
        return
    plan = Plan.from_json(manifest.plan, f"the plan in '{module}'")
    if manifest.alternatives:
        show_facts(str(module), [*file_rows(manifest), *checked])
        show_alternatives(manifest)
        return
    show_facts(str(module), [*module_rows(manifest, plan), *checked])
    if manifest.segments:
        show_segments(manifest)
    show_choices(plan)


def _draw_cold(times: Path, picture: Path) -> None:
    """Draw the typical first inferences in a file, each runtime's by itself, and what its layers take."""
    check_apart({"--cold": picture}, [("the times to draw", times)])
    record = read_cold(times)
    bars = [
        bar for (name, state), run in record.runs.items() for bar in bars_of(f"{name}, {state}"[:_NAME_LENGTH], run)
    ]
    panels = [Panel("first inferences", bars)]
    if record.layers:
        panels.append(Panel("layers, each executed once it was read", list(layer_bars(record.layers))))
    with written(picture) as path:
        path.write_text(draw(*panels), encoding="utf-8", errors="backslashreplace")


def _inspect_difference(
    first: Path, second: Path | None, diff: bool, verify: bool, choice: PlanChoice, json: bool
) -> None:
    if second is None:
        raise UsageError(f"--diff compares two modules or saved plans; name another one beside '{first}'")
    if not diff:
        raise UsageError(
            f"'{second}' is one file too many; compare the plans of two modules with --diff, or a module with its "
            "ONNX model by 'sartor compare'"
        )
    if verify:
        raise UsageError("--verify compares a module with its own checksums; leave --diff out")
    plans = [_plan_in(path, choice) for path in (first, second)]
    changes = compare_plans(*plans)
    if json:
        show_json({"same_model": len({plan.model_sha256 for plan in plans}) == 1, **difference_json(changes)})
        return
    if len({plan.model_sha256 for plan in plans}) > 1:
        _LOG.warning("'%s' and '%s' were made from other models; nodes of the same name are compared", first, second)
    for path, plan in zip((first, second), plans, strict=True):
        if plan.unsplit:
            _LOG.warning("'%s' has no layers: it is the whole model by stock IREE", path)
    show_difference((str(first), str(second)), changes)


def _plan_in(path: Path, choice: PlanChoice) -> Plan:
    """The plan in a module, of several the chosen one, or a saved one."""
    if path.suffix == ".json":
        _check_unchosen(path, choice)
        return Plan.load(path)
    return Plan.from_json(one_plan(read_manifest(path), choice, path).plan, f"the plan in '{path}'")


def _check_unchosen(path: Path, choice: PlanChoice) -> None:
    if choice != FIRST:
        raise UsageError(f"'{path}' holds saved plans, which are all shown; leave --shape, --device and --cpu out")


def _inspect_saved(saved: Plan | PlanSet, name: str, json: bool) -> None:
    """Show a plan, or list the plans of a file with several, as they were saved."""
    if isinstance(saved, Plan):
        _inspect_plan(saved, name, json)
    elif json:
        show_json(saved.to_json())
    else:
        show_saved(saved)


def _inspect_plan(plan: Plan, name: str, json: bool) -> None:
    """Show a plan as it was saved, with the times of the other plans that ran beside it."""
    if json:
        show_json(plan.to_json())
        return
    facts = [
        ("prepared model's SHA-256", plan.model_sha256),
        *plan_rows(plan),
        ("measured ms", milliseconds(plan.measured)),
        ("stock IREE ms", shown_stock(plan)),
    ]
    show_facts(name, [fact for fact in facts if fact[1]])
    show_choices(plan)
    show_compared(plan)


def _checked(module: Path, manifest: Manifest) -> str:
    """What the checksums say, in words."""
    whole = check_weights(module, manifest)
    return "as they were written" if whole else "as they were written; the weights beside the module have none"
