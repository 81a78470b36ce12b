"""How far times that were measured elsewhere tell of this machine and of a network's variants."""

from __future__ import annotations

import functools
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence, Set
from dataclasses import replace
from statistics import median
from threading import Lock

from sartor.codegen.analysis.task_bounds import kind_and_sizes
from sartor.codegen.ir.machines.core import WIDE, Core
from sartor.codegen.ir.variants.descriptor import without_parameters
from sartor.codegen.ir.variants.traits import DescribedVariant
from sartor.tuning.search.cost_model import CostModel, Sample, is_readable
from sartor.tuning.search.features import analytic_seconds, lowered_seconds, seconds_of_all, stepping_seconds
from sartor.tuning.search.shipped.left_out import left_out
from sartor.tuning.search.shipped.stored_guide import stored_guide
from sartor.tuning.search.shipped.times import path_of, shipped_samples

# The median of fewer ratios may be that of a few odd layers.
_FEWEST_RATIOS = 8
# A search that knows less of its variants needs its later rounds.
_MOST_UNSEEN = 0.1
# The part of a kernel's time in which it may read its filters for that to be hidden.
_HIDDEN = 0.5
# The least that widening costs a kernel.
_WIDENING = 1.02
# Of fewer samples of a kind of kernel a model learns the tasks, and not the kernel.
_FEWEST_OF_KIN = 8
# What the least task takes by the package's times, which is in all of them and in no analytic model.
_START = 0.4e-6
_OWN = "f32"

Kin = tuple[object, ...]


def kin(variant: DescribedVariant) -> Kin:
    """Variants with equal values are comparable: a model that has seen some predicts the others.

    So are kernels of a family, whatever they compute. Code by IREE for one kind of layer tells nothing of another kind.
    """
    traits = variant.traits
    family = traits.family or variant.routine
    operation = "" if traits.cost or traits.estimate else without_parameters(variant.descriptor).rpartition("/")[2]
    return variant.dtype, family, traits.blocked, traits.weights, traits.transforms_filters, operation


def kin_in(samples: Iterable[Sample]) -> frozenset[Kin]:
    """What a model that is trained on samples can compare variants with."""
    counts = Counter(kin(sample.variant) for sample in samples)
    return frozenset(kind for kind, count in counts.items() if count >= _FEWEST_OF_KIN)


def predicted_seconds(
    facts: str,
    variants: Sequence[DescribedVariant],
    model: CostModel | None,
    seen: Set[Kin],
    core: Core,
    *,
    is_open: bool = False,
) -> list[float]:
    """Predicted seconds of variants of a task where nothing was measured.

    A kernel of several layers competes with the sum of their times, one of any size with stock code, and one that
    multiplies groups of numbers by an instruction with those that multiply single ones. What a learned model makes of
    a kernel whose like it has not ``seen`` is about the time of others of the task, so its analytic model counts if
    there is one: an instruction's, or that of a family of kernels of which none was seen, at the pace at which the
    learned model takes the task's other kernels to run, and that of a kernel by filters in fewer bytes, or of images in
    8 bits, at the pace of the same kernel in the model's types.

    Code by IREE was seen of layers for which it is not far slower than kernels. So of convolutions it has no less than
    its products take, and of layers that loop over steps what each of these takes is added.

    Of a task whose weight is in blocks of integers, kernels that read these have their own models' times, and code that
    turns the weight into floats first has no less than by its own model: what was seen read floats. So has code by IREE
    for sizes that are known only when it runs: what was seen knew its sizes, and was vectorised by them.

    Args:
        facts: of the task.
        variants: what is asked about.
        model: a learned model; None to take the analytic ones of all.
        seen: kin of the model's samples.
        core: of the target.
        is_open: whether the task's sizes are known only when it runs.

    Raises:
        ValueError: if ``facts`` cannot be parsed.
    """
    analytic = seconds_of_all(facts, variants, core)
    if model is None:
        return analytic
    comparable = [_comparable(variant, seen) for variant in variants]
    learned = _learned(facts, variants, comparable, model, core)
    known = [kin(variant) in seen for variant in variants]
    told = [kin(other) in seen for other in comparable]
    families = {family for _, family, *_ in seen}
    # Kernels that take no longer than the least task tell of no pace.
    paces = [
        (learned_value - _START) / own
        for variant, learned_value, own, is_known in zip(variants, learned, analytic, known, strict=True)
        if is_known and variant.traits.cost is not None and learned_value > _START
    ]
    pace = median(paces or [1.0])
    has_codes = any(variant.traits.reads_codes for variant in variants)

    def predicted(variant: DescribedVariant, learned: float, own: float, *, is_known: bool, is_told: bool) -> float:
        traits = variant.traits
        learned = max(learned, _START, lowered_seconds(facts, variant, core)) + stepping_seconds(facts, variant, core)
        is_lowered_open = is_open and traits.starts_steps
        if is_lowered_open or (is_known and has_codes and not traits.reads_codes):
            return max(learned, own)
        if is_known:
            return learned
        if traits.reads_codes:
            return model.pace * own
        if (traits.fuses or traits.opens) and traits.estimate is not None:
            return max(own, _START)
        is_alone = traits.family is not None and traits.family not in families and not is_told
        has_model = traits.cost is not None or (is_alone and traits.estimate is not None)
        return _START + pace * own if (is_alone or traits.instruction is not None) and has_model else learned

    return [
        predicted(variant, learned_value, own, is_known=is_known, is_told=is_told)
        for variant, learned_value, own, is_known, is_told in zip(variants, learned, analytic, known, told, strict=True)
    ]


def _learned(
    facts: str,
    variants: Sequence[DescribedVariant],
    comparable: Sequence[DescribedVariant],
    model: CostModel,
    core: Core,
) -> list[float]:
    """What a learned model predicts; for kernels whose like it has not seen and that traits compare with others, as
    those by narrower filters with wide ones, what it predicts for these, times the ratio of the analytic models of
    both."""
    return [
        seconds * (1.0 if other is variant else _by_comparable(facts, variant, other, core))
        for variant, other, seconds in zip(variants, comparable, model.seconds(facts, comparable), strict=True)
    ]


def _by_comparable(facts: str, variant: DescribedVariant, other: DescribedVariant, core: Core) -> float:
    """How much longer a kernel takes than the one that its traits compare it with, by the analytic models of both.

    Filters that are read from memory in a small part of the kernel's time are read ahead of the products. That narrower
    ones are fewer bytes saves nothing then, and widening them still takes its instructions (docs/records/precision.md).
    """
    seconds = analytic_seconds(facts, other, core)
    ratio = analytic_seconds(facts, variant, core) / seconds
    if variant.traits.weights == other.traits.weights:
        return ratio
    _, sizes = kind_and_sizes(facts)
    reading = sizes["weights"] / core.bytes_per_cycle / core.hertz
    return max(ratio, _WIDENING) if reading < _HIDDEN * seconds else ratio


def _comparable(variant: DescribedVariant, seen: Set[Kin]) -> DescribedVariant:
    """A variant, or if its like was not ``seen`` the one that its traits compare it with, whose like was, or for which
    it has no model of its own."""
    if variant.traits.wide is None or kin(variant) in seen:
        return variant
    traits = variant.traits.wide
    wide = replace(variant, traits=traits, dtype=variant.dtype if traits.precision else _OWN)
    return wide if kin(wide) in seen or variant.traits.cost is None else variant


def is_covered(variants: Iterable[DescribedVariant], samples: Sequence[Sample]) -> bool:
    """Whether samples tell of nearly all of some variants that take time; False without samples or variants."""
    seen = kin_in(samples)
    are_seen = [kin(variant) in seen for variant in variants if not variant.traits.is_free]
    return bool(seen and are_seen) and are_seen.count(False) <= _MOST_UNSEEN * len(are_seen)


def guide(foreign: Sequence[Sample]) -> CostModel | None:
    """A model of foreign samples alone; None if there are none, or too few."""
    return CostModel.fit([*foreign, *left_out(foreign)], favours_fast=True) if foreign else None


@functools.lru_cache(maxsize=1)
def _guides() -> tuple[Lock, dict[tuple[str, int], CostModel | None]]:
    """Trained models by what their samples are of."""
    return Lock(), {}


def shipped_guide(isa: str, threads: int) -> CostModel | None:
    """The ``guide`` of the package's samples for machines of a kind, as ``shipped_samples`` names it.

    It is stored with them, or else trained once in a process. A second thread that asks meanwhile waits.
    """
    lock, known = _guides()
    with lock:
        if (isa, threads) not in known:
            samples, path = shipped_samples(isa, threads), path_of(isa, threads)
            stored = stored_guide(path, samples) if path is not None and samples else None
            known[isa, threads] = stored or guide(samples)
        return known[isa, threads]


def joint_model(
    own: Sequence[Sample], foreign: Sequence[Sample], guided_by: CostModel | None, core: Core = WIDE
) -> CostModel | None:
    """A model of samples of this machine and, at its pace, of foreign ones, of which ``guided_by`` is the ``guide``.

    ``core`` is that of the machine, as for ``features``; foreign samples are of CPUs.
    """
    if guided_by is None:
        return CostModel.fit(own, core=core)
    if not own:
        return guided_by
    return CostModel.fit([*own, *at_pace_of(own, [*foreign, *left_out(foreign)], guided_by)], favours_fast=True)


def at_pace_of(own: Sequence[Sample], foreign: Sequence[Sample], model: CostModel) -> Sequence[Sample]:
    """Foreign samples with the times that this machine would take.

    Machines of one class of instruction sets differ by a factor, which is the median ratio of what was measured here to
    what a model of the foreign samples predicts. Unscaled, predictions of a faster machine would promise gains over the
    times measured here that are none.

    Args:
        own: measured on this machine.
        foreign: measured on another one.
        model: trained on the foreign samples.
    """
    seen = kin_in(foreign)
    tasks: defaultdict[str, list[Sample]] = defaultdict(list)
    for sample in own:
        if kin(sample.variant) in seen and is_readable(sample):
            tasks[sample.facts].append(sample)
    ratios = [
        sample_taken.seconds / predicted
        for facts, listed in tasks.items()
        for sample_taken, predicted in zip(
            listed, model.seconds(facts, [sample.variant for sample in listed]), strict=True
        )
    ]
    if len(ratios) < _FEWEST_RATIOS:
        return foreign
    pace = median(ratios)
    return [sample.taking(sample.seconds * pace) for sample in foreign]
