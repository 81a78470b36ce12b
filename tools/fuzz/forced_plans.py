"""Plans with arbitrary variants: each layer may have any eligible variant, measured or not."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from sartor.codegen.ir.graph import LayerGraph
from sartor.codegen.ir.layer import Layer
from sartor.codegen.ir.variants.routine import Rejected, Routine, Variant, choices_of, describe, variant_of
from sartor.codegen.routines import FUSED_ROUTINES
from sartor.config import CompileConfig
from sartor.dialect_passes.split_layers import apply_choices
from sartor.frontend.imported_model import ImportedModel
from sartor.planning.guessed_recipe import unmeasured_recipe
from sartor.planning.recipe import Recipe
from sartor.precision.eligibility import IsEligible, eligibility, eligible_routines

Forced = Mapping[str, str]
"""Descriptors of variants by layer name. Names that the model does not have are ignored, and layers without an entry
get candidate 0, so a part of a plan or a model is valid too."""

_FUSED, _SPLIT = 0.5, 0.7


class PlanForcer:
    """Makes recipes of one model with random or given variants.

    Args:
        imported: the model, with ranges of the values that may be quantised.
        config: settings; the precision limits the variants.
    """

    def __init__(self, imported: ImportedModel, config: CompileConfig) -> None:
        self._imported = imported
        self._config = config
        self._routines = eligible_routines(imported, config.precision)
        self._is_eligible: IsEligible = eligibility(imported, config.precision)

    def random(self, seed: int) -> Recipe:
        """Return a recipe of random variants. A layer's variant depends on the seed and the layer's name only."""
        chosen = frozenset(self._names(self._imported.graph, seed))
        graph = apply_choices(self._imported.graph, chosen)
        return self._recipe(graph, {layer.name: self._drawn(layer, seed) for layer in graph.layers})

    def given(self, forced: Forced) -> Recipe:
        """Return a recipe with the given variants, as far as the model has them."""
        graph = apply_choices(self._imported.graph, forced.keys())
        return self._recipe(graph, {layer.name: self._named(layer, forced.get(layer.name)) for layer in graph.layers})

    def _recipe(self, graph: LayerGraph, variants: Mapping[str, Variant]) -> Recipe:
        return unmeasured_recipe(self._imported, graph, variants, self._config.planning)

    def _names(self, graph: LayerGraph, seed: int) -> Iterator[str]:
        """Yield names of disjoint fused layers, and names of the layers of chosen childnets."""
        taken: set[str] = set()
        for fusion in graph.fusions:
            if taken.isdisjoint(fusion.members) and _random(seed, fusion.layer.name).random() < _FUSED:
                taken.update(fusion.members)
                yield fusion.layer.name
        for layer in graph.layers:
            nets, random = graph.childnets_of(layer.name), _random(seed, layer.name)
            if nets and layer.name not in taken and random.random() < _SPLIT:
                inner = nets[int(random.integers(len(nets)))].graph
                yield from (each.name for each in inner.layers)
                yield from self._names(inner, seed)

    def _drawn(self, layer: Layer, seed: int) -> Variant:
        """Return a random variant of a layer, uniform over routines and then over their parameters."""
        random = _random(seed, layer.name)
        routines = self._routines_of(layer)
        for index in random.permutation(len(routines)):
            found = self._any(routines[index], layer, random)
            if found is not None:
                return found
        return self._stock(layer)

    def _any(self, routine: Routine, layer: Layer, random: np.random.Generator) -> Variant | None:
        choices = choices_of(routine, layer.task, self._config.target)
        if isinstance(choices, Rejected) or not choices:
            return None
        parameters = choices[int(random.integers(len(choices)))]
        found = variant_of(routine, layer.task, parameters, self._config.target)
        return found if isinstance(found, Variant) and self._is_eligible(layer, found) else None

    def _named(self, layer: Layer, descriptor: str | None) -> Variant:
        target = self._config.target
        for routine in self._routines_of(layer) if descriptor else ():
            choices = choices_of(routine, layer.task, target)
            for parameters in () if isinstance(choices, Rejected) else choices:
                if describe(routine, layer.task, parameters, target) == descriptor:
                    found = variant_of(routine, layer.task, parameters, target)
                    if isinstance(found, Variant) and self._is_eligible(layer, found):
                        return found
        return self._stock(layer)

    def _stock(self, layer: Layer) -> Variant:
        """Return candidate 0, which every layer has."""
        found = variant_of(self._routines[0], layer.task, {}, self._config.target)
        if isinstance(found, Rejected):
            raise AssertionError(f"'{layer.name}' has no candidate 0: {found.reason}")
        return found

    def _routines_of(self, layer: Layer) -> Sequence[Routine]:
        return FUSED_ROUTINES if layer.task.stages else self._routines


def _random(seed: int, name: str) -> np.random.Generator:
    return np.random.default_rng([seed, zlib.crc32(name.encode())])


def forced_by(recipe: Recipe) -> Forced:
    """Return the descriptor of each layer's variant in a recipe."""
    return {name: variant.descriptor for name, variant in sorted(recipe.variants.items())}
