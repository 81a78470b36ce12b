"""Decides which variants a layer may run: 8 bits need ranges, and weights of a quantised model must not change."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from sartor.codegen.analysis.rounded_result import rounds
from sartor.codegen.ir.block_packing import USUAL_BLOCK
from sartor.codegen.ir.encoding import permits_rounding
from sartor.codegen.ir.graph import LayerGraph
from sartor.codegen.ir.layer import Layer, ValueRef
from sartor.codegen.ir.packing import Narrow, Packing
from sartor.codegen.ir.schema import QUANTISED
from sartor.codegen.ir.variants.routine import Routine, Storing, Variant, dtype_of
from sartor.codegen.routine_registry import low_precision, routines_for
from sartor.dialect_passes.annotate import Candidates
from sartor.frontend.imported_model import ImportedModel
from sartor.frontend.value_ranges import Values
from sartor.policies import Precision

IsEligible = Callable[[Layer, Variant], bool]


def narrower_type(variant: Variant, layer: Layer) -> str | None:
    """The element type that a variant rounds a layer's values to, if it is not the layer's own."""
    return variant.dtype if variant.dtype in low_precision() and variant.dtype != dtype_of(layer.task) else None


def eligible_routines(
    imported: ImportedModel, precision: Precision, blocks: Collection[int] = (USUAL_BLOCK,)
) -> tuple[Routine, ...]:
    """The routines of the precision that the user allows, and 8-bit routines if the model is quantised; weights in
    blocks of 4 bits have the given numbers of rows."""
    asked = tuple(each for each in routines_for(precision.types_in(blocks)) if _is_asked_for(each, precision))
    if imported.is_quantised and not precision.quantises_values:
        own = (each for each in low_precision()[QUANTISED] if isinstance(each, Storing) and each.storage == QUANTISED)
        asked = (*asked, *own)
    whole = any(each.is_integer for each in imported.ranges.values())
    return tuple(each for each in asked if whole or not each.traits.needs_run_time_ranges)


def _is_asked_for(routine: Routine, precision: Precision) -> bool:
    """Whether the user allows what a routine rounds to 8 bits, if it does."""
    traits = routine.traits
    if precision is Precision.PERMITTED:
        return traits.precision is None or traits.needs_permission
    return precision.quantises_values or traits.precision != QUANTISED or traits.weights == QUANTISED


def eligibility(imported: ImportedModel, precision: Precision) -> IsEligible:
    """Whether a layer may run a variant.

    A variant that quantises needs ranges of the values it reads and writes, the same range for all results. Unless the
    user allows 8 bits, its weights must already be multiples of a scale by 8-bit integers, as in a quantised model;
    weights whose zero point moves them out of 8 bits are not. Sums of integers are never rounded. Weights are stored
    in a narrower type to be widened when they are read only where that type has all of their numbers.
    """
    asked = {None, *precision.types, *([QUANTISED] if imported.is_quantised else [])}
    exact: dict[tuple[str, object], bool] = {}
    values = Values(imported.graph)
    keeps_integers, keeps_numbers = _ExactIntegers(imported, values).keeps, _numbers_kept(imported)
    unrounded = {
        child.name for net in imported.graph.all_childnets() if not net.may_round for child in net.graph.all_layers()
    }

    def is_exact(name: str, packing: Packing) -> bool:
        key = (name, packing.channels)
        if key not in exact:
            exact[key] = packing.is_exact(imported.weights[name])
        return exact[key]

    def is_eligible(layer: Layer, variant: Variant) -> bool:
        code = variant.implementation
        if not all(keeps_numbers(name, each) for name, each in zip(layer.weights, code.packings, strict=False)):
            return False
        narrower = narrower_type(variant, layer)
        if narrower not in asked or (narrower is not None and layer.name in unrounded):
            return False
        if not all(values.read(layer, each) in imported.ranges for each in code.ranges if each is not None):
            return False
        written = {imported.ranges.get(each) for each in values.written(layer)} if None in code.ranges else set()
        if None in written or len(written) > 1 or not keeps_integers(layer, variant):
            return False
        if code.step is not None and any(each is not None and each.scale != code.step for each in written):
            return False
        if precision.quantises_values or (precision.quantises_filters and variant.traits.weights == QUANTISED):
            return True
        if precision is Precision.PERMITTED and variant.traits.needs_permission:
            return permits_rounding(layer.task)
        if variant.dtype == QUANTISED and _rounds_more(variant):
            # It would round results computed from integers, or what it multiplies once more.
            return False
        if imported.is_quantised and variant.traits.transforms and rounds(layer.task):
            # Its error before rounding is a thousand times larger, so a thousand times as many results would change by
            # a step.
            return False
        return all(is_exact(name, each) for name, each in zip(layer.weights, code.packings, strict=True))

    return is_eligible


def _numbers_kept(imported: ImportedModel) -> Callable[[str, Packing], bool]:
    """Whether the narrower type that a packing stores a weight in, if there is one, has all of its numbers."""
    known: dict[tuple[str, Narrow], bool] = {}

    def keeps(name: str, packing: Packing) -> bool:
        step = packing.narrowing
        if step is not None and (name, step) not in known:
            known[name, step] = step.is_exact(imported.weights[name])
        return step is None or known[name, step]

    return keeps


def _rounds_more(variant: Variant) -> bool:
    """Whether a variant rounds other values than those that a quantised model stores in 8 bits."""
    traits = variant.traits
    return traits.rounds_between or traits.scales_rows or traits.rounds_factor or traits.weights == QUANTISED


class _ExactIntegers:
    """The layers whose exact values matter in a model that finds ranges at run time or computes in integers.

    Scales, zero points and their share of a sum must not be rounded, as Winograd's transforms and narrower types would.
    """

    def __init__(self, imported: ImportedModel, values: Values) -> None:
        self._integers = {value for value, numbers in imported.ranges.items() if numbers.is_integer}
        self._values = values
        layers = list(imported.graph.all_layers()) if self._integers else []
        readers = {each.name for each in layers if not self._integers.isdisjoint(self._read(each))}
        touching = readers | {value.source for value in self._integers if value.source is not None}
        feeding = {value.source for each in layers if each.name in touching for value in self._read(each)}
        scalars = self._leading_to_scalars(layers)
        self._exact = readers | _children(imported.graph, readers)
        self._own_types = self._exact | touching | feeding | scalars

    def keeps(self, layer: Layer, variant: Variant) -> bool:
        """Whether a variant keeps exact values where required."""
        if layer.name in self._exact and variant.traits.transforms:
            return False
        if layer.name in self._own_types and (variant.traits.scales_rows or variant.traits.weights == QUANTISED):
            return False
        if layer.name not in self._own_types or variant.dtype == dtype_of(layer.task):
            return True
        read, stored = self._read(layer), variant.implementation.ranges
        values = {read[each] for each in stored if each is not None}
        values |= set(self._values.written(layer)) if None in stored else set()
        return variant.dtype == QUANTISED and self._integers.issuperset(values)

    def _leading_to_scalars(self, layers: Sequence[Layer]) -> set[str]:
        """Layers with scalar results, such as scales, and layers read only by these, such as minima of rows."""
        users: dict[str, set[str]] = {}
        found = {each.name for each in layers if all(result.elements == 1 for result in each.task.results)}
        for layer in reversed(layers):
            if users.get(layer.name) and users[layer.name] <= found:
                found.add(layer.name)
            for value in self._read(layer):
                users.setdefault(value.source or "", set()).add(layer.name)
        return found

    def _read(self, layer: Layer) -> list[ValueRef]:
        return [self._values.read(layer, slot) for slot in range(len(layer.inputs))]


def _children(graph: LayerGraph, layers: set[str]) -> set[str]:
    """Layers in the childnets of ``layers``."""
    nets = [each.graph for each in graph.all_childnets() if each.layer in layers]
    return {child.name for net in nets for child in net.all_layers()}


def eligible_candidates(candidates: Candidates, imported: ImportedModel, precision: Precision) -> Candidates:
    """The candidates without variants that no layer may run, which need not be measured."""
    is_eligible = eligibility(imported, precision)
    layers: dict[str, list[Layer]] = {}
    for layer in imported.graph.all_layers():
        layers.setdefault(layer.task.key, []).append(layer)
    kept = {
        key: tuple(each for each in variants if any(is_eligible(layer, each) for layer in layers[key]))
        for key, variants in candidates.variants.items()
    }
    return replace(candidates, variants=kept)
