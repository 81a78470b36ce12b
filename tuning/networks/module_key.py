"""Identifies a compiled network by all that its bytes depend on."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping
from importlib import metadata

import numpy as np

from sartor.codegen.ir.target import Target
from sartor.codegen.source_digest import package_digest
from sartor.tuning.networks.build_job import SplitNetwork, UnsplitNetwork
from sartor.tuning.records.hardware import host
from sartor.tuning.records.measurement import runtime_key


def weights_digest(weights: Mapping[str, np.ndarray]) -> str:
    """A hash of arrays and their names."""
    hashed = hashlib.sha256()
    for name, array in sorted(weights.items()):
        hashed.update(f"{name}\0{array.dtype}\0{array.shape}\0".encode())
        hashed.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return hashed.hexdigest()


def module_key(net: SplitNetwork | UnsplitNetwork, weights: str, target: Target, manifest: str) -> str:
    """The key of the module that ``build_net`` makes on this machine.

    Args:
        net: the network.
        weights: their ``weights_digest``.
        target: what it is compiled for.
        manifest: the text that the module carries.
    """
    parts = (*_made_with(), repr(target), target.key, weights, manifest, *_content(net))
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
    ranges = (f"{ref} {each}" for ref, each in sorted(net.ranges.items(), key=str))
    return ("split", repr(net.graph), *codes, *ranges)


@functools.cache
def _made_with() -> tuple[str, ...]:
    """What makes modules: the versions of programs, every line of this package, and the processor that code is for."""
    return runtime_key(), metadata.version("numpy"), package_digest(), host().key
