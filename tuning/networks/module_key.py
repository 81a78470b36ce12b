"""Identifies a compiled network by all that its bytes depend on."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path

import numpy as np

from sartor.codegen.ir.target import Target
from sartor.codegen.source_digest import package_digest
from sartor.tuning.kept.values import digest_of_file
from sartor.tuning.networks.build_job import SplitNetwork, UnsplitNetwork
from sartor.tuning.records.hardware import host
from sartor.tuning.records.measurement import runtime_key
from sartor.tuning.workers.shared_arrays import StoredArrays


def weights_digest(weights: Mapping[str, np.ndarray], of_file: Callable[[Path], str] = digest_of_file) -> str:
    """A hash of arrays and their names.

    Args:
        weights: the arrays.
        of_file: the hash of the file that they lie in, if they all lie in one.
    """
    hashed = hashlib.sha256()
    if isinstance(weights, StoredArrays) and len(weights.paths) == 1:
        hashed.update(f"{of_file(*weights.paths)} {weights.listed}".encode())
        return hashed.hexdigest()
    for name, array in sorted(weights.items()):
        hashed.update(f"{name}\0{array.dtype}\0{array.shape}\0".encode())
        hashed.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return hashed.hexdigest()


def module_beginning(net: SplitNetwork | UnsplitNetwork, target: Target, manifest: str) -> str:
    """How the key of the module begins that ``build_net`` makes on this machine, whatever its weights.

    Args:
        net: the network.
        target: what it is compiled for.
        manifest: the text that the module carries.
    """
    parts = (*_made_with(), repr(target), target.key, manifest, *_content(net))
    hashed = hashlib.sha256()
    for part in parts:
        hashed.update(f"{len(part)} ".encode() + part.encode())
    return hashed.hexdigest()


def _content(net: SplitNetwork | UnsplitNetwork) -> tuple[str, ...]:
    if isinstance(net, UnsplitNetwork):
        return ("unsplit", hashlib.sha256(net.bytecode).hexdigest())
    codes = (
        f"{layer} {variant.descriptor} {variant.implementation.digest}"
        for layer, variant in sorted(net.variants.items())
    )
    ranges = (f"{ref} {value_range}" for ref, value_range in sorted(net.ranges.items(), key=str))
    return ("split", repr(net.graph), repr(net.computed), *codes, *ranges)


@functools.cache
def _made_with() -> tuple[str, ...]:
    """What makes modules: the versions of programs, every line of this package, and the processor that code is for."""
    return runtime_key(), metadata.version("numpy"), package_digest(), host().key
