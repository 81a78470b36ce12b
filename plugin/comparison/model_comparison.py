"""Prepares the comparison of a module with its model, layer by layer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from sartor.codegen.ir.target import Target
from sartor.codegen.linking.several.level import portable
from sartor.comparison.layer_errors import LayerComparison, Workshop
from sartor.config import CompileConfig
from sartor.devices import is_cpu
from sartor.errors import UsageError
from sartor.frontend.imported_model import ImportedModel
from sartor.frontend.layer_tensors import layer_tensors
from sartor.frontend.loading import import_network, open_workspace
from sartor.onnx_model.graphs.prepared import prepared_model
from sartor.planning.recorded_recipe import precision_of
from sartor.policies import DEFAULT_MAX_ERROR
from sartor.profiling.replay import replay
from sartor.progress import Progress, silent
from sartor.runtime.driver.signature import Array
from sartor.runtime.manifest import Manifest
from sartor.runtime.module_facts import has_levels, module_manifest
from sartor.runtime.several.choice import FIRST, PlanChoice
from sartor.tuning.records.plan import Plan


def layered_manifest(module: Path, choice: PlanChoice = FIRST, *, later: bool = False) -> Manifest:
    """The manifest of a module that was built layer by layer; of several plans that of the chosen one.

    If it has a plan for ``later`` inferences, it can be as if that was its only plan.

    Raises:
        UsageError: if the module has no manifest, or no layers, or is for any size.
    """
    manifest = module_manifest(module, choice)
    if manifest is None:
        raise UsageError(
            f"'{module}' was not compiled by sartor, so its layers are not known; compare its outputs only"
        )
    if manifest.sizes:
        names = " and ".join(f"'{size.name}'" for size in manifest.sizes)
        raise UsageError(
            f"'{module}' is for any {names}, and layers are compared one by one where sizes are known: compile the "
            "model with numbers in --shape, and compare the layers of that file"
        )
    if later and manifest.successor is not None:
        manifest = replace(manifest, plan=manifest.successor["plan"])
    if _plan(manifest, module).unsplit:
        raise UsageError(
            f"'{module}' has no layers, it is the whole model by stock IREE; "
            "compile the model with --pin '*=*', which keeps it split into layers, and compare that"
        )
    return manifest


def usual_error(module: Path, choice: PlanChoice = FIRST) -> float:
    """The default bound on a module's relative error, by the types in which its plan computes, or each of its plans.

    Raises:
        UsageError: if the file is missing or not an IREE module.
    """
    manifest = module_manifest(module, choice)
    if manifest is None:
        return DEFAULT_MAX_ERROR
    try:
        later = () if manifest.successor is None else (manifest.successor["plan"],)
        plans = (Plan.from_json(stored, f"the plan in '{module}'") for stored in (manifest.plan, *later))
        return max(precision_of(plan).usual_error for plan in plans)
    except UsageError:
        # The plan is of another version; outputs can be compared nevertheless.
        return DEFAULT_MAX_ERROR


def _plan(manifest: Manifest, module: Path) -> Plan:
    return Plan.from_json(manifest.plan, f"the plan in '{module}'")


@contextmanager
def open_comparison(
    module: Path,
    model: Path,
    feeds: Mapping[str, Array],
    shapes: Mapping[str, tuple[int, ...]],
    *,
    choice: PlanChoice = FIRST,
    later: bool = False,
    threads: int | None = None,
    progress: Progress = silent,
) -> Iterator[LayerComparison]:
    """Prepare a comparison of a module's layers with ONNX Runtime.

    Args:
        module: compiled by Sartor from ``model``, layer by layer.
        model: ONNX file.
        feeds: one array per input.
        shapes: of inputs with open dimensions, as ``bound_shapes`` finds them.
        choice: the device, and of several plans the one to look into.
        later: whether to look into the plan for later inferences, if it has one.
        threads: as for ``Session``.
        progress: told what is going on.

    Raises:
        UsageError: if the module has no layers, was compiled from another model, or by another version.
    """
    manifest = layered_manifest(module, choice, later=later)
    plan = _plan(manifest, module)
    kind, _, architecture = plan.target.partition(":")
    target, bindings = Target.create(kind, architecture), plan.bound
    if is_cpu(kind) and has_levels(module):
        target = portable(target)
    config = CompileConfig(target=target, threads=plan.threads, shapes=shapes, bindings=bindings, finds_states=False)
    importing = replace(config.importing, named=tuple(layer.layer for layer in plan.layers), exponents=plan.exponents)
    with open_workspace(config.target, config.jobs) as (pool, directory):
        imported = import_network(model, importing, pool, progress, directory)
        _check_same(imported, plan, module)
        replayed = replay(plan, imported, config.planning)
        recipe = replayed.recipe
        shop = Workshop(pool, directory, config.header, choice.device or kind, threads, progress)
        tensors = layer_tensors(prepared_model(imported.prepared), recipe.graph)
        yield LayerComparison(replayed.imported, recipe, tensors, feeds, shop, replayed.candidates.rejections)


def _check_same(imported: ImportedModel, plan: Plan, module: Path) -> None:
    if imported.sha256 != plan.model_sha256:
        raise UsageError(
            f"'{imported.path}' is not the model that '{module}' was compiled from: prepared it has the SHA-256 "
            f"{imported.sha256[:12]}, the module says {plan.model_sha256[:12]}; name that model, or compile this one"
        )
