"""Lets layers that read one weight read it in one form, so that the module stores it once.

A table of tokens is often the weight of the last product, too. Looking some rows up takes no time beside that product,
so the look-up follows the form that the product was selected with.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from sartor.codegen.ir.layer import Layer
from sartor.codegen.ir.packing import Packing
from sartor.codegen.ir.variants.routine import Variant
from sartor.planning.recipe import Recipe
from sartor.tuning.cost_tables.tables import Tables

# How much longer a layer may take for it: times of short layers are known that well.
_RATIO, _SECONDS = 1.1, 5e-6


def with_shared_weights(recipe: Recipe, tables: Tables) -> Recipe:
    """The recipe in which layers read a weight as the slowest of its readers does, if that is hardly slower."""
    variants, readers = dict(recipe.variants), defaultdict[str, list[tuple[Layer, int]]](list)
    for layer in recipe.graph.layers:
        for position, name in enumerate(layer.weights):
            readers[name].append((layer, position))
    for shared in readers.values():
        slowest, place = max(shared, key=lambda each: _seconds(each[0], variants[each[0].name], tables))
        packing = variants[slowest.name].implementation.packings[place]
        for layer, position in shared:
            if layer.name != slowest.name:
                variants[layer.name] = _reading(layer, position, packing, variants[layer.name], tables)
    return recipe if variants == recipe.variants else replace(recipe, variants=variants)


def _reading(layer: Layer, position: int, packing: Packing, chosen: Variant, tables: Tables) -> Variant:
    """The fastest variant that reads a weight in a form and differs in nothing else that others see, or ``chosen``.

    One that was not measured counts as if it were as fast.
    """
    if chosen.implementation.packings[position] == packing:
        return chosen
    key, taken = layer.task.key, _seconds(layer, chosen, tables)
    known = tables.measured.get(key, {})
    usable = {variant.descriptor: measurement.time for variant, measurement in tables.usable(key)}
    found = [
        (usable.get(variant.descriptor, taken), variant.descriptor, variant)
        for variant in tables.variants[key]
        if (variant.descriptor in usable or variant.descriptor not in known)
        and _looks_alike(variant, chosen)
        and variant.implementation.packings[position] == packing
    ]
    fitting = [each for each in found if each[0] <= _RATIO * taken + _SECONDS]
    return min(fitting)[-1] if fitting else chosen


def _looks_alike(variant: Variant, other: Variant) -> bool:
    own, given = variant.implementation, other.implementation
    is_of_type = (variant.device, variant.dtype) == (other.device, other.dtype)
    return is_of_type and (own.inputs, own.outputs, own.ranges) == (given.inputs, given.outputs, given.ranges)


def _seconds(layer: Layer, variant: Variant, tables: Tables) -> float:
    return tables.seconds(layer.task.key, variant.descriptor) or 0.0
