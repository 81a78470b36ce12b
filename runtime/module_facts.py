"""Reads a .vmfb's manifest, signature and weight files for commands."""

from __future__ import annotations

from pathlib import Path

from sartor.runtime.driver.signature import Signature
from sartor.runtime.manifest import Manifest, find_manifest, read_signature
from sartor.runtime.module import open_module


def module_manifest(path: Path) -> Manifest | None:
    """The manifest, or None for a module that another program compiled.

    Raises:
        UsageError: if the file is missing or not an IREE module.
    """
    return find_manifest(open_module(path))


def module_signature(path: Path) -> Signature:
    """The entry function with its inputs and outputs.

    Raises:
        UsageError: if the file is missing, is not an IREE module, or does not record its signature.
    """
    module = open_module(path)
    manifest = find_manifest(module)
    return manifest.signature if manifest else read_signature(module)


def module_weights(path: Path, manifest: Manifest | None) -> dict[str, Path]:
    """The weight files beside the module, by scope."""
    return {scope: path.parent / name for scope, name in manifest.parameters.items()} if manifest else {}
