"""Reads a .vmfb's manifest, signature and weight files for commands."""

from __future__ import annotations

import re
from pathlib import Path

from sartor.errors import UsageError
from sartor.runtime.driver.bound_input import BoundInput
from sartor.runtime.driver.signature import Signature, parse_signature
from sartor.runtime.files.checksums import checksum
from sartor.runtime.manifest import Manifest, find_manifest, read_signature
from sartor.runtime.module import beside, open_module

_NAME = re.compile(r"[\w.$]+")


def module_manifest(path: Path) -> Manifest | None:
    """The manifest, or None for a module that another program compiled.

    Raises:
        UsageError: if the file is missing or not an IREE module.
    """
    return find_manifest(open_module(path))


def module_signature(path: Path, given: str | None = None) -> Signature:
    """The entry function with its inputs and outputs.

    Args:
        path: a .vmfb.
        given: for a module without manifest, a signature as ``parse_signature`` reads it, or the name of the function
            to run if the module records what it takes.

    Raises:
        UsageError: if the file is missing, is not an IREE module, its signature is not known, or one is given although
            it has a manifest.
    """
    module = open_module(path)
    manifest = find_manifest(module)
    if manifest is None:
        return read_signature(module, given) if given is None or _NAME.fullmatch(given) else parse_signature(given)
    if given is not None:
        raise UsageError(f"{module.label} says itself what it takes and gives; leave --signature out")
    return manifest.signature


def bound_inputs(path: Path) -> tuple[BoundInput, ...]:
    """The model's inputs whose values were fixed at compile time; none for a module that another program compiled.

    Raises:
        UsageError: as ``module_manifest``.
    """
    manifest = module_manifest(path)
    return manifest.bound if manifest else ()


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
            found = checksum(file)
        except OSError as error:
            raise UsageError(f"the weights '{file}' cannot be read: {error.strerror}") from None
        if known.get(scope, found) != found:
            raise UsageError(
                f"the weights '{file}' are damaged, or those of another module: their checksum is not the one in "
                f"'{path}'; copy or compile both again"
            )
    return weights.keys() <= known.keys()
