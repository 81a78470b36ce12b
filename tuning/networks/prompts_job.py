"""Worker side: compile plans of a decoder into one module, for single tokens and for parts of a prompt."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sartor.codegen.ir.target import Target
from sartor.codegen.linking.several.last_tokens import last_layers
from sartor.codegen.linking.several.prompts import PartPlan, join_prompts
from sartor.codegen.linking.stitching import compile_stitched
from sartor.runtime.driver.cache import Prompt
from sartor.runtime.manifest import PARTS_FORMAT, Manifest
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
    tokens: WeightedNetwork, prompts: Sequence[WeightedNetwork], target: Target, manifest: Manifest, files: NetFiles
) -> int:
    """Worker side: compile plans into ``files``; returns the bytes of their weights.

    Args:
        tokens: the plan for one token.
        prompts: those for several, as the manifest has them.
        target: what all are compiled for.
        manifest: of the file.
        files: to write.

    Raises:
        CompileError: with IREE's diagnostic.
    """
    one, *others = (
        next(iter(stitchings(network.net, network.weights, target).values())) for network in (tokens, *prompts)
    )
    parts, told = list[PartPlan](), list[Prompt]()
    for prompt, network, other in zip(manifest.prompts, prompts, others, strict=True):
        last = last_layers(one, other)
        parts.append(PartPlan(prompt.suffix, other, last))
        told.append(_told(prompt, (tokens.seconds, network.seconds), frozenset() if last is None else last.names))
    manifest = replace(manifest, prompts=tuple(told), format=max(manifest.format, PARTS_FORMAT))
    joined = join_prompts(one, parts, target, manifest.to_json(), packed_file(files.module))
    embed = files.weights is None
    compile_stitched(joined, target, files.module, embed=embed, store=KeptCode.of_user())
    if files.weights is not None:
        write_weights(files, joined.parameters)
    return sum(array.nbytes for array in joined.parameters.values())


def _told(prompt: Prompt, seconds: Seconds, last: Collection[str]) -> Prompt:
    """A function for prompts with what is known once plans are written: see ``Prompt``."""
    return replace(prompt, calls=calls_of(prompt, seconds, last), gives_last=bool(last))


def calls_of(prompt: Prompt, seconds: Seconds, last: Collection[str] = ()) -> float:
    """How many calls of one token take as long as one for a part of a prompt.

    Args:
        prompt: the function for parts; what it tells is taken where times are not known.
        seconds: of a call of one token, and of a part.
        last: layers that run for the last token alone.
    """
    one, many = seconds
    if not one or not many:
        return prompt.calls
    # Not less than the token that it has at least, also where all that takes time in its plan runs for that alone.
    return max((1 - _share_of(prompt.plan, last)) * many / one, 1.0)


def _share_of(plan: Mapping[str, Any], names: Collection[str]) -> float:
    """The part of a plan's time that layers take."""
    seconds = {layer["layer"]: layer["seconds"] or 0.0 for layer in plan.get("layers", ())}
    return sum(seconds.get(name, 0.0) for name in names) / max(sum(seconds.values()), 1e-12)
