"""The first round where much was measured elsewhere: few variants of each task, more of those that matter.

A cost model that has seen the layers of many networks ranks variants well, whatever their layout, so candidates are
taken by its ranking alone, and a layout that it takes to be slower is left out. How many depends on the share of the
network's time that the task is predicted to take: the rest of the search's budget is spent where it pays.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sartor.codegen.ir.variants.traits import DescribedVariant
from sartor.tuning.search.cost_model import CostModel
from sartor.tuning.search.leaders import groups


@dataclass(frozen=True)
class FirstLimits:
    """Limits of such a round, which ``benchmarks.selection`` varies with families of networks held out.

    Attributes:
        shares: from each of these shares of the network's predicted time on, one variant more of a task is measured.
        families: from this share on, the fastest of each family of routines: a wrong guess would cost most there.
        near: the best variant of another layout is measured if it is predicted to take no more than so many times as
            long as the best: the layers around may need it.
    """

    shares: tuple[float, ...] = (0.01, 0.05, 0.2)
    families: float = 0.05
    near: float = 1.2


def fastest(facts: str, variants: Sequence[DescribedVariant], model: CostModel) -> float:
    """Predicted seconds of the fastest of a task's variants; 0 if there are none.

    Raises:
        ValueError: if ``facts`` cannot be parsed.
    """
    return min(model.seconds(facts, variants), default=0.0)


def promising(
    facts: str, variants: Sequence[DescribedVariant], model: CostModel, share: float, limits: FirstLimits
) -> Iterator[DescribedVariant]:
    """The variants of a task that are worth measuring; some may be listed twice.

    Args:
        facts: of the task.
        variants: in types of which the model has seen samples, without candidate 0.
        model: has seen many networks.
        share: of the network's time that the task is predicted to take.
        limits: of the round.

    Raises:
        ValueError: if ``facts`` cannot be parsed.
    """
    predicted = dict(zip((variant.descriptor for variant in variants), model.seconds(facts, variants), strict=True))

    def seconds(variant: DescribedVariant) -> float:
        return predicted[variant.descriptor]

    ranked = sorted(variants, key=seconds)
    if not ranked:
        return
    least = seconds(ranked[0])
    yield from ranked[: 1 + sum(share >= start for start in limits.shares)]
    if share >= limits.families:
        yield from (first for first, *_ in groups(ranked, lambda variant: variant.traits.family))
    layouts = groups(ranked, lambda variant: variant.format_class)
    yield from (first for first, *_ in layouts if seconds(first) <= limits.near * least)
