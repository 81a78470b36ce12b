"""Reads a .vmfb's manifest, signature and weight files for commands."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from sartor.devices import CPU
from sartor.errors import DeviceError, UsageError
from sartor.runtime.driver.bound_input import BoundInput
from sartor.runtime.driver.device import device_settings
from sartor.runtime.driver.noise import Noise
from sartor.runtime.driver.signature import Signature, parse_signature
from sartor.runtime.files.checksums import checksum, wrong_weights
from sartor.runtime.foreign import read_signature
from sartor.runtime.manifest import Manifest, find_manifest
from sartor.runtime.module import beside, open_module
from sartor.runtime.opening import ONLY_KEPT
from sartor.runtime.several.choice import FIRST, LevelHere, PlanChoice, check_known, chosen_plan
from sartor.runtime.several.levels import likely_level

_NAME = re.compile(r"[\w.$]+")


def module_manifest(path: Path, choice: PlanChoice = FIRST) -> Manifest | None:
    """The manifest, or None for a module that another program compiled.

    Args:
        path: a .vmfb.
        choice: of a file with several plans, the one that the manifest shall describe.

    Raises:
        UsageError: if the file is missing or not an IREE module, or has no such plan.
        DeviceError: if it has no plan for the device, or this CPU runs none of its levels.
    """
    manifest = find_manifest(open_module(path))
    return None if manifest is None else _one_that_runs(manifest, choice, path)


def one_plan(manifest: Manifest, choice: PlanChoice, module: Path) -> Manifest:
    """The manifest that a file would have if it had the plan alone that a choice means; nothing of the file is run.

    Of several CPU levels it is the one that this machine has the features of, or the best if it has those of none.

    Raises:
        UsageError: if the file has no such plan.
        DeviceError: if it has no plan for the device.
    """
    return _one_of(manifest, choice, module, lambda plans: likely_level(plans) or plans[0].level)


def _one_that_runs(manifest: Manifest, choice: PlanChoice, module: Path) -> Manifest:
    """As ``one_plan``, but the module is asked which level it chooses.

    Raises:
        UsageError: as ``one_plan``.
        DeviceError: also if this CPU runs none of its levels.
    """
    return _one_of(manifest, choice, module, lambda _: _level_here(module))


def _one_of(manifest: Manifest, choice: PlanChoice, module: Path, level: LevelHere) -> Manifest:
    if not manifest.alternatives:
        _check_only(manifest, choice, module)
        return manifest
    chosen = chosen_plan(manifest.alternatives, choice, f"'{module}'", level)
    return replace(
        manifest,
        inputs=chosen.inputs,
        outputs=chosen.outputs,
        plan=chosen.plan or manifest.plan,
        network=chosen.network or manifest.network,
        devices=(chosen.device,),
        levels=(chosen.level,),
        features=chosen.features,
        alternatives=(),
    )


def _check_only(manifest: Manifest, choice: PlanChoice, module: Path) -> None:
    """Make sure that the only plan of a file is the one that is meant."""
    what, have = f"'{module}' has no plan for the", "its only one is for"
    if choice.device is not None and (kind := device_settings(choice.device).kind) not in manifest.devices:
        raise DeviceError(f"{what} device '{kind}', {have} {', '.join(manifest.devices)}")
    if choice.level not in (None, *manifest.levels):
        raise UsageError(f"{what} level {choice.level}, {have} {', '.join(manifest.levels)}")
    check_known(choice.shapes, manifest.inputs, f"'{module}'")
    for spec in manifest.inputs:
        shape = choice.shapes.get(spec.name, spec.shape)
        sizes = zip(spec.shape, shape, strict=False)
        if len(shape) != len(spec.shape) or any(own not in (None, size) for own, size in sizes):
            given = ",".join(map(str, shape))
            raise UsageError(f"'{module}' has one plan, for '{spec.name}' as {spec}, not {given}")


def _level_here(module: Path) -> str | None:
    """The CPU level that a module chooses when it is loaded."""
    from sartor.runtime.session import Session

    with Session(module, device=CPU, threads=1, huge_pages=False) as session:
        return session.level


def check_passes_all(path: Path) -> None:
    """Make sure that callers may pass all that a module reads.

    Raises:
        UsageError: if it keeps caches itself.
    """
    manifest = find_manifest(open_module(path), whole=False)
    if manifest is not None and manifest.caches:
        raise UsageError(ONLY_KEPT)


def module_signature(path: Path, given: str | None = None, choice: PlanChoice = FIRST) -> Signature:
    """The entry function with its inputs and outputs.

    Args:
        path: a .vmfb.
        given: for a module without manifest, a signature as ``parse_signature`` reads it, or the name of the function
            to run if the module records what it takes.
        choice: as for ``module_manifest``.

    Raises:
        UsageError: if the file is missing, is not an IREE module, its signature is not known, or one is given although
            it has a manifest; or as ``module_manifest``.
        DeviceError: as ``module_manifest``.
    """
    module = open_module(path)
    manifest = find_manifest(module)
    if manifest is None:
        is_named = given is None or _NAME.fullmatch(given)
        signature = read_signature(module, given) if is_named else parse_signature(str(given))
        check_known(choice.shapes, signature.inputs, module.label)
        return signature
    if given is not None:
        raise UsageError(f"{module.label} says itself what it takes and gives; leave --signature out")
    return _one_that_runs(manifest, choice, path).signature


def input_names(path: Path, given: str | None = None) -> frozenset[str]:
    """Names of all inputs of the model, also of those that were bound; none if they cannot be found out.

    Args:
        path: a .vmfb.
        given: as for ``module_signature``.
    """
    try:
        manifest = find_manifest(open_module(path))
        if manifest is None:
            return frozenset(spec.name for spec in module_signature(path, given).inputs)
    except UsageError:
        return frozenset()
    return frozenset(spec.name for spec in (*manifest.inputs, *(bound.spec for bound in manifest.bound)))


def session_signature(path: Path, signature: Signature) -> Signature | None:
    """What a session must be told of a module's signature: nothing if its manifest says it.

    A session that is told runs that function alone, and never the plan for later inferences.

    Raises:
        UsageError: as ``module_manifest``.
    """
    return signature if find_manifest(open_module(path)) is None else None


def session_threads(path: Path) -> int | None:
    """Number of threads that a session on the CPU has if it is not told; None if the file does not say.

    Raises:
        UsageError: if the file is missing or not an IREE module.
    """
    manifest = find_manifest(open_module(path))
    return None if manifest is None else manifest.workers


def inference_functions(manifest: Manifest | None, signature: Signature) -> tuple[Signature, ...]:
    """The function that inferences run; of a file with a plan for the first one and one for later ones, both."""
    later = None if manifest is None else manifest.successor
    return (signature,) if later is None else (signature, signature._replace(entry=later["entry"]))


def has_levels(path: Path) -> bool:
    """Whether a file's code for the CPU is for several levels, so that it uses only what a module can ask for.

    Raises:
        UsageError: if the file is missing or not an IREE module.
    """
    manifest = find_manifest(open_module(path))
    return manifest is not None and any(alternative.needs for alternative in manifest.alternatives)


def check_first_part(path: Path, device: str) -> None:
    """Make sure that IREE's tools run a file's code for a device: of several modules they run the first.

    Raises:
        UsageError: if the file is missing or not an IREE module.
        DeviceError: if the code for the device is in another part of the file.
    """
    manifest = find_manifest(open_module(path))
    if manifest is not None and manifest.alternatives and device.partition(":")[0] != manifest.devices[0]:
        raise DeviceError(
            f"dispatches are timed by IREE's tool, which runs the first part of '{path}', for the device "
            f"{manifest.devices[0]}; compile a file for {device} alone to time its dispatches"
        )


def bound_inputs(path: Path) -> tuple[BoundInput, ...]:
    """The model's inputs whose values were fixed at compile time; none for a module that another program compiled.

    Raises:
        UsageError: as ``module_manifest``.
    """
    manifest = find_manifest(open_module(path))
    return manifest.bound if manifest else ()


def noise_inputs(path: Path) -> tuple[Noise, ...]:
    """The inputs that stand for the model's random operators; none for a module that another program compiled.

    Raises:
        UsageError: as ``module_manifest``.
    """
    manifest = find_manifest(open_module(path))
    return manifest.noise if manifest else ()


def module_weights(path: Path, manifest: Manifest | None) -> dict[str, Path]:
    """The weight files beside the module, by scope."""
    return {scope: beside(path, name) for scope, name in manifest.parameters.items()} if manifest else {}


def check_weights(path: Path, manifest: Manifest) -> bool:
    """Compare the weight files beside a module with the checksums that it has of them.

    Returns:
        Whether it has one of each; a module that an earlier version compiled has none.

    Raises:
        UsageError: if a file is missing, damaged, or of another module.
    """
    known, weights = open_module(path).checksums, module_weights(path, manifest)
    for scope, file in weights.items():
        try:
            sum_of_file = checksum(file)
        except OSError as error:
            raise UsageError(f"the weights '{file}' cannot be read: {error.strerror}") from None
        if known.get(scope, sum_of_file) != sum_of_file:
            raise UsageError(wrong_weights(f"'{file}'"))
    return weights.keys() <= known.keys()
