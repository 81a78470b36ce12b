"""Worker side: compile two plans of a decoder into one module, for single tokens and for parts of a prompt."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sartor.codegen.ir.target import Target
from sartor.codegen.linking.several.last_tokens import last_layers
from sartor.codegen.linking.several.prompts import join_prompts
from sartor.codegen.linking.stitching import compile_stitched
from sartor.runtime.driver.cache import Prompt
from sartor.runtime.manifest import LAST_FORMAT, Manifest
from sartor.tuning.kept.code import KeptCode
from sartor.tuning.networks.build_job import SplitNetwork, packed_file, stitchings, write_weights
from sartor.tuning.networks.net_files import NetFiles

Seconds = tuple[float | None, float | None]


@dataclass(frozen=True)
class WeightedNetwork:
    """A plan of a network on the CPU.

    Attributes:
        net: its layers and variants.
        weights: by name, in ONNX layout.
        seconds: of a call; None if it was not timed.
    """

    net: SplitNetwork
    weights: Mapping[str, np.ndarray]
    seconds: float | None = None


def build_prompts(
    tokens: WeightedNetwork, prompts: WeightedNetwork, target: Target, manifest: Manifest, files: NetFiles
) -> int:
    """Worker side: compile two plans into ``files``; returns the bytes of their weights.

    Args:
        tokens: the plan for one token.
        prompts: that for several.
        target: what both are compiled for.
        manifest: of the file.
        files: to write.

    Raises:
        CompileError: with IREE's diagnostic.
    """
    one, other = (
        next(iter(stitchings(network.net, network.weights, target).values())) for network in (tokens, prompts)
    )
    last = last_layers(one, other)
    manifest = _told(manifest, (tokens.seconds, prompts.seconds), frozenset() if last is None else last.names)
    joined = join_prompts(one, other, target, manifest.to_json(), packed_file(files.module), last)
    embed = files.weights is None
    compile_stitched(joined, target, files.module, embed=embed, store=KeptCode.of_user())
    if files.weights is not None:
        write_weights(files, joined.parameters)
    return sum(array.nbytes for array in joined.parameters.values())


def _told(manifest: Manifest, seconds: Seconds, last: Collection[str]) -> Manifest:
    """The manifest with what is known once both plans are written: see ``Prompt.least`` and ``Prompt.gives_last``."""
    if (prompt := manifest.prompt) is None:
        raise ValueError("the manifest tells of no function for prompts")
    told = replace(prompt, least=least_tokens(prompt, seconds, last), gives_last=bool(last))
    return replace(manifest, prompt=told, format=max(manifest.format, LAST_FORMAT))


def least_tokens(prompt: Prompt, seconds: Seconds, last: Collection[str]) -> int:
    """From how many tokens on a call for a part of a prompt takes less time than so many calls.

    Args:
        prompt: the function for parts; what it tells is taken where times are not known.
        seconds: of a call of one token, and of a part.
        last: layers that run for the last token alone.
    """
    one, many = seconds
    if not one or not many:
        return prompt.least
    return min(max(math.ceil((1 - _share_of(prompt.plan, last)) * many / one), 2), prompt.tokens)


def _share_of(plan: Mapping[str, Any], names: Collection[str]) -> float:
    """The part of a plan's time that layers take."""
    seconds = {each["layer"]: each["seconds"] or 0.0 for each in plan.get("layers", ())}
    return sum(seconds.get(name, 0.0) for name in names) / max(sum(seconds.values()), 1e-12)
