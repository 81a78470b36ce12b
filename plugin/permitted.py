"""Which variants a layer may run: 8 bits need ranges, and a quantised model's weights stay what they are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from sartor.codegen.layer import Layer
from sartor.codegen.layouts import QUANTISED
from sartor.codegen.packing import Packing
from sartor.codegen.routine import Routine, Storing, Variant
from sartor.codegen.routines import LOW_PRECISION, WHOLE_NUMBERS, routines_for
from sartor.config import CompileConfig
from sartor.dialect_passes.annotate import Candidates
from sartor.front_job import Front
from sartor.ranging import Values

Permits = Callable[[Layer, Variant], bool]


def permitted_routines(front: Front, config: CompileConfig) -> tuple[Routine, ...]:
    """Those of the precision that the user allows, and of 8 bits throughout if the model is quantised."""
    asked = routines_for(config.precision.types)
    if front.is_quantised and QUANTISED not in config.precision.types:
        own = (each for each in LOW_PRECISION[QUANTISED] if isinstance(each, Storing) and each.storage == QUANTISED)
        asked = (*asked, *own)
    whole = any(each.is_whole for each in front.ranges.values())
    return tuple(each for each in asked if whole or each not in WHOLE_NUMBERS)


def permits(front: Front, config: CompileConfig) -> Permits:
    """Whether a layer may run a variant.

    A variant that quantises asks for ranges of what it reads and writes; of several results it takes one. Unless the
    user asks for 8 bits, its weights must be whole numbers by a scale already, as those of a quantised model are;
    weights whose zero point takes them out of 8 bits are not.
    """
    exact: dict[tuple[str, Packing], bool] = {}
    values = Values(front.graph)

    def is_exact(name: str, packing: Packing) -> bool:
        if (name, packing) not in exact:
            exact[name, packing] = packing.is_exact(front.weights[name])
        return exact[name, packing]

    def may_run(layer: Layer, variant: Variant) -> bool:
        code = variant.implementation
        if not all(values.read(layer, each) in front.ranges for each in code.ranges if each is not None):
            return False
        written = {front.ranges.get(each) for each in values.written(layer)} if None in code.ranges else set()
        if None in written or len(written) > 1:
            return False
        if QUANTISED in config.precision.types:
            return True
        return all(is_exact(name, each) for name, each in zip(layer.weights, code.packings, strict=True))

    return may_run


def permitted_candidates(candidates: Candidates, front: Front, config: CompileConfig) -> Candidates:
    """Without variants that no layer may run: they need not be measured."""
    may_run = permits(front, config)
    layers: dict[str, list[Layer]] = {}
    for layer in front.graph.all_layers():
        layers.setdefault(layer.task.key, []).append(layer)
    kept = {
        key: tuple(each for each in variants if any(may_run(layer, each) for layer in layers[key]))
        for key, variants in candidates.variants.items()
    }
    return replace(candidates, variants=kept)
