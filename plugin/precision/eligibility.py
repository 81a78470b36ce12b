"""Decides which variants a layer may run: 8 bits need ranges, and weights of a quantised model must not change."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from sartor.codegen.analysis.rounded_result import rounds
from sartor.codegen.ir.block_packing import USUAL_BLOCK
from sartor.codegen.ir.encoding import permits_rounding
from sartor.codegen.ir.graph import LayerGraph
from sartor.codegen.ir.layer import Layer, ValueRef
from sartor.codegen.ir.packing import Narrow, Packing, Quantise
from sartor.codegen.ir.schema import QUANTISED
from sartor.codegen.ir.variants.candidates import Candidates, Filter
from sartor.codegen.ir.variants.routine import Rejected, Routine, Storing, Variant, dtype_of
from sartor.codegen.kernels.isa.multipliers import DotElement
from sartor.codegen.routine_registry import low_precision, routines_for
from sartor.frontend.imported_model import ImportedModel
from sartor.frontend.value_ranges import Values
from sartor.policies import Precision

IsEligible = Callable[[Layer, Variant], bool]
WhyIneligible = Callable[[Layer, Variant], Rejected | None]

_TOO_NARROW = Rejected("the type that it stores a weight in does not have all of the weight's numbers")
_AMPLIFIES = Rejected("the method that the layer is part of would multiply the error of rounding")
_NO_RANGE_READ = Rejected("it needs the range of a value that it reads, which is not known")
_NO_RANGE_WRITTEN = Rejected("it needs the range of its result, which is not known")
_FOUND_AT_RUN_TIME = Rejected(
    "what it multiplies is in integers already, for which there is the same code by another name"
)
_SEVERAL_RANGES = Rejected("it needs the same range for all results")
_INEXACT_INTEGERS = Rejected("it would round integers, or the scales and zero points that belong to them")
_NOT_PERMITTED = Rejected("the model does not permit to round what the layer multiplies")
_ROUNDS_MORE = Rejected("it would round what the quantised model does not round")
_TRANSFORMS = Rejected("its transforms would change results by a step of their rounding too often")
_TOO_LARGE = Rejected("sums of products by its weights may be larger than its transforms leave bits for")
_NOT_QUANTISED = Rejected("it stores a weight in 8 bits, whose numbers are no multiples of a scale by 8-bit integers")


def narrower_type(variant: Variant, layer: Layer) -> str | None:
    """The element type that a variant rounds a layer's values to, if it is not the layer's own."""
    return variant.dtype if variant.dtype in low_precision() and variant.dtype != dtype_of(layer.task) else None


def eligible_routines(
    imported: ImportedModel, precision: Precision, blocks: Collection[int] = (USUAL_BLOCK,)
) -> tuple[Routine, ...]:
    """The routines of the precision that the user allows, and 8-bit routines if the model is quantised; weights in
    blocks of 4 bits have the given numbers of rows."""
    asked = tuple(routine for routine in routines_for(precision.types_in(blocks)) if _is_asked_for(routine, precision))
    if imported.is_quantised and not precision.quantises_values:
        own = (
            stored_form
            for stored_form in low_precision()[QUANTISED]
            if isinstance(stored_form, Storing) and stored_form.storage == QUANTISED
        )
        asked = (*asked, *own)
    whole = any(value_range.is_integer for value_range in imported.ranges.values())
    return tuple(routine for routine in asked if whole or not routine.traits.needs_run_time_ranges)


def _is_asked_for(routine: Routine, precision: Precision) -> bool:
    """Whether the user allows what a routine rounds to 8 or 16 bits, if it does."""
    traits = routine.traits
    if precision is Precision.PERMITTED:
        return traits.precision is None or traits.needs_permission
    if precision is Precision.PERMITTED_WORDS:
        return traits.precision is None
    if traits.needs_permission:
        return precision.quantises_values
    return precision.quantises_values or traits.precision != QUANTISED or traits.weights == QUANTISED


def eligibility(imported: ImportedModel, precision: Precision) -> IsEligible:
    """Whether a layer may run a variant: where ``ineligibility`` knows no reason against it."""
    reason = ineligibility(imported, precision)
    return lambda layer, variant: reason(layer, variant) is None


def ineligibility(imported: ImportedModel, precision: Precision) -> WhyIneligible:
    """Why a layer may not run a variant, if it may not.

    A variant that quantises needs ranges of the values it reads and writes, the same range for all results. Unless the
    user allows 8 bits, its weights must already be multiples of a scale by 8-bit integers, as in a quantised model;
    weights whose zero point moves them out of 8 bits are not. Sums of integers are never rounded. Weights are stored
    in a narrower type to be widened when they are read only where that type has all of their numbers.
    """
    values, weights = _ValueRules(imported, precision), _WeightRules(imported)

    def reason(layer: Layer, variant: Variant) -> Rejected | None:
        """The first reason in the order of the rules; the last one of them takes the longest."""
        refused = weights.too_narrow(layer, variant) or values.refused(layer, variant)
        refused = refused or weights.too_large(layer, variant)
        if refused is not None:
            return refused
        if _needs_small_pairs(variant) and (inexact := weights.inexact(layer, variant)) is not None:
            return inexact
        if precision.quantises_values or (precision.quantises_filters and variant.traits.weights == QUANTISED):
            return None
        if variant.traits.needs_permission:
            is_permitted = precision.is_permitted and permits_rounding(layer.task)
            return None if is_permitted else _NOT_PERMITTED
        if variant.dtype == QUANTISED and _rounds_more(variant):
            # It would round results computed from integers, or what it multiplies once more.
            return _ROUNDS_MORE
        if imported.is_quantised and variant.traits.transforms and rounds(layer.task):
            # Its error before rounding is a thousand times larger, so a thousand times as many results would change by
            # a step.
            return _TRANSFORMS
        return weights.inexact(layer, variant)

    return reason


class _ValueRules:
    """Which values a variant may round."""

    def __init__(self, imported: ImportedModel, precision: Precision) -> None:
        self._ranges, self._precision = imported.ranges, precision
        self._allowed = {None, *precision.types, *([QUANTISED] if imported.is_quantised else [])}
        self._values = Values(imported.graph)
        self._keeps_integers = _ExactIntegers(imported, self._values).keeps
        nets = [childnet.graph for childnet in imported.graph.all_childnets() if not childnet.may_round]
        self._unrounded = {child.name for net in nets for child in net.all_layers()}

    def refused(self, layer: Layer, variant: Variant) -> Rejected | None:
        """Why a variant may not round the values of a layer as it does."""
        narrower = narrower_type(variant, layer)
        if narrower not in self._allowed:
            return Rejected(f"it rounds to {narrower}, which precision {self._precision} does not allow")
        if narrower is not None and layer.name in self._unrounded:
            return _AMPLIFIES
        code = variant.implementation
        if not all(self._values.read(layer, slot) in self._ranges for slot in code.ranges if slot is not None):
            return _NO_RANGE_READ
        if variant.traits.rounds_factor and self._reads_integers(layer, variant):
            return _FOUND_AT_RUN_TIME
        written = {self._ranges.get(value) for value in self._values.written(layer)} if None in code.ranges else set()
        if None in written:
            return _NO_RANGE_WRITTEN
        if len(written) > 1:
            return _SEVERAL_RANGES
        if not self._keeps_integers(layer, variant):
            return _INEXACT_INTEGERS
        if code.step is not None and any(numbers is not None and numbers.scale != code.step for numbers in written):
            return Rejected(f"its results need the scale {code.step:g}")
        return None

    def _reads_integers(self, layer: Layer, variant: Variant) -> bool:
        """Whether a variant reads integers in 8 bits, whose range the model finds at run time."""
        slots = [slot for slot in variant.implementation.ranges if slot is not None]
        return any(self._ranges[self._values.read(layer, slot)].is_integer for slot in slots)


class _WeightRules:
    """Which weights a variant may store in fewer bits."""

    def __init__(self, imported: ImportedModel) -> None:
        self._weights = imported.weights
        self._keeps_numbers = _numbers_kept(imported)
        self._exact: dict[tuple[str, object], bool] = {}
        self._fitting: dict[tuple[str, Quantise], bool] = {}

    def too_narrow(self, layer: Layer, variant: Variant) -> Rejected | None:
        """Why a variant may not store weights in the type in which it widens them."""
        packings = zip(layer.weights, variant.implementation.packings, strict=False)
        return None if all(self._keeps_numbers(*pair) for pair in packings) else _TOO_NARROW

    def inexact(self, layer: Layer, variant: Variant) -> Rejected | None:
        """Why a variant may not store weights in 8 bits, if it does and they are not of 8 bits."""
        packings = zip(layer.weights, variant.implementation.packings, strict=True)
        return None if all(self._is_exact(*pair) for pair in packings) else _NOT_QUANTISED

    def too_large(self, layer: Layer, variant: Variant) -> Rejected | None:
        """Why a variant may not multiply by a layer's weights, if sums may exceed what it holds."""
        packings = zip(layer.weights, variant.implementation.packings, strict=False)
        return None if all(self._fits(*pair) for pair in packings) else _TOO_LARGE

    def _fits(self, name: str, packing: Packing) -> bool:
        step = packing.summing
        if step is None:
            return True
        if (name, step) not in self._fitting:
            self._fitting[name, step] = packing.fits(self._weights[name])
        return self._fitting[name, step]

    def _is_exact(self, name: str, packing: Packing) -> bool:
        key = (name, (packing.channels, packing.bounding))
        if key not in self._exact:
            self._exact[key] = packing.is_exact(self._weights[name])
        return self._exact[key]


def _numbers_kept(imported: ImportedModel) -> Callable[[str, Packing], bool]:
    """Whether the narrower type that a packing stores a weight in, if there is one, has all of its numbers."""
    known: dict[tuple[str, Narrow], bool] = {}

    def keeps(name: str, packing: Packing) -> bool:
        step = packing.narrowing
        if step is not None and (name, step) not in known:
            known[name, step] = step.is_exact(imported.weights[name])
        return step is None or known[name, step]

    return keeps


def _needs_small_pairs(variant: Variant) -> bool:
    """Whether a variant would round weights to 7 bits where pairs of products could saturate."""
    instruction = variant.traits.instruction
    return isinstance(instruction, DotElement) and instruction.needs_small_pairs


def _rounds_more(variant: Variant) -> bool:
    """Whether a variant rounds other values than those that a quantised model stores in 8 bits.

    One that rounds what it multiplies alone rounds nothing if that has a range: it is multiples of the scale already.
    """
    traits = variant.traits
    return traits.rounds_between or traits.scales_rows or traits.weights == QUANTISED


class _ExactIntegers:
    """The layers whose exact values matter in a model that finds ranges at run time or computes in integers.

    Scales, zero points and their share of a sum must not be rounded, as Winograd's transforms and narrower types would.
    """

    def __init__(self, imported: ImportedModel, values: Values) -> None:
        self._integers = {value for value, numbers in imported.ranges.items() if numbers.is_integer}
        self._values = values
        layers = list(imported.graph.all_layers()) if self._integers else []
        readers = {layer.name for layer in layers if not self._integers.isdisjoint(self._read(layer))}
        touching = readers | {value.source for value in self._integers if value.source is not None}
        feeding = {value.source for layer in layers if layer.name in touching for value in self._read(layer)}
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
        values = {read[ref] for ref in stored if ref is not None}
        values |= set(self._values.written(layer)) if None in stored else set()
        return variant.dtype == QUANTISED and self._integers.issuperset(values)

    def _leading_to_scalars(self, layers: Sequence[Layer]) -> set[str]:
        """Layers with scalar results, such as scales, and layers read only by these, such as minima of rows."""
        users: dict[str, set[str]] = {}
        leading = {layer.name for layer in layers if all(result.elements == 1 for result in layer.task.results)}
        for layer in reversed(layers):
            if users.get(layer.name) and users[layer.name] <= leading:
                leading.add(layer.name)
            for value in self._read(layer):
                users.setdefault(value.source or "", set()).add(layer.name)
        return leading

    def _read(self, layer: Layer) -> list[ValueRef]:
        return [self._values.read(layer, slot) for slot in range(len(layer.inputs))]


def _children(graph: LayerGraph, layers: set[str]) -> set[str]:
    """Layers in the childnets of ``layers``."""
    nets = [childnet.graph for childnet in graph.all_childnets() if childnet.layer in layers]
    return {child.name for net in nets for child in net.all_layers()}


def eligible_candidates(candidates: Candidates, imported: ImportedModel, precision: Precision) -> Candidates:
    """The candidates without variants that no layer may run, which need not be measured."""
    reason = ineligibility(imported, precision)
    layers: dict[str, list[Layer]] = {}
    for layer in imported.graph.all_layers():
        layers.setdefault(layer.task.key, []).append(layer)

    def judge(key: str, variant: Variant) -> Rejected | None:
        answers = (reason(layer, variant) for layer in layers[key])
        first = next(answers)
        return None if first is None or None in answers else first

    return candidates.judged(Filter.VALUES, judge)
