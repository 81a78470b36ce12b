"""The manifest of a file with several plans."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from sartor.codegen.linking.several.level import level_of
from sartor.policies import ModuleHeader
from sartor.profiling.compilation.made_plan import Made
from sartor.runtime.manifest import SEVERAL_FORMAT, STATES_FORMAT, Manifest
from sartor.runtime.segments.record import part_name
from sartor.runtime.several.record import Alternative


def manifest_of(made: Sequence[Made], weights: Path | None) -> Manifest:
    """The manifest of a file with these plans, in this order: those of the first device are in its first module.

    Args:
        made: the plans.
        weights: file of the weights beside the module; None if they are inside.
    """
    single = [
        Manifest.from_json(plan.recipe.manifest(plan.imported, ModuleHeader(plan.target, weights))) for plan in made
    ]
    first = made[0].target.device
    has_levels = len({plan.target for plan in made if plan.target.is_cpu}) > 1
    alternatives = [
        Alternative(
            device=plan.target.device,
            level=plan.target.architecture,
            inputs=own.inputs,
            outputs=own.outputs,
            needs=level_of(plan.target).needs if has_levels and plan.target.is_cpu else (),
            features=own.features,
            part=part_name(plan.target.device, first),
            plan=own.plan,
            network=own.network,
        )
        for plan, own in zip(made, single, strict=True)
    ]
    return _with(single[0], alternatives)


def part_manifest(manifest: Manifest, device: str) -> Manifest:
    """The manifest that the module of a device carries: that of the file in the first, else of its own plans."""
    if device == manifest.devices[0]:
        return manifest
    own = [replace(alternative, part="") for alternative in manifest.alternatives if alternative.device == device]
    return _with(manifest, own)


def _with(manifest: Manifest, alternatives: Sequence[Alternative]) -> Manifest:
    first = alternatives[0]
    return replace(
        manifest,
        inputs=first.inputs,
        outputs=first.outputs,
        plan=first.plan,
        network=first.network,
        devices=tuple(dict.fromkeys(alternative.device for alternative in alternatives)),
        levels=tuple(dict.fromkeys(alternative.level for alternative in alternatives)),
        features=(),
        alternatives=(replace(first, plan={}, network={}), *alternatives[1:]),
        format=max(manifest.format, STATES_FORMAT if manifest.states else SEVERAL_FORMAT),
    )
