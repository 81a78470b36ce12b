"""The first round where much was measured elsewhere: few variants of each task, more of those that matter.

A cost model that has seen the layers of many networks ranks variants well, whatever their layout, so candidates are
taken by its ranking alone, and a layout that it takes to be slower is left out. How many depends on the share of the
network's time that the task is predicted to take: the rest of the search's budget is spent where it pays.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sartor.codegen.ir.variants.traits import DescribedVariant
from sartor.tuning.search.cost_model import CostModel
from sartor.tuning.search.leaders import groups

# From this share of the network's predicted time on, so many variants of a task are measured.
_MOST = ((0.0, 1), (0.01, 2), (0.05, 3), (0.2, 4))
# From this share on, the fastest of each family of routines: a wrong guess would cost most there.
_LARGE = 0.05
# The best variant of another layout is measured if it is predicted to be slower than the best by less: the layers
# around may need it.
_NEAR = 1.05


def fastest(facts: str, variants: Sequence[DescribedVariant], model: CostModel) -> float:
    """Predicted seconds of the fastest of a task's variants; 0 if there are none.

    Raises:
        ValueError: if ``facts`` cannot be parsed.
    """
    return min(model.seconds(facts, variants), default=0.0)


def promising(
    facts: str, variants: Sequence[DescribedVariant], model: CostModel, share: float
) -> Iterator[DescribedVariant]:
    """The variants of a task that are worth measuring; some may be listed twice.

    Args:
        facts: of the task.
        variants: in types of which the model has seen samples, without candidate 0.
        model: has seen many networks.
        share: of the network's time that the task is predicted to take.

    Raises:
        ValueError: if ``facts`` cannot be parsed.
    """
    predicted = dict(zip((each.descriptor for each in variants), model.seconds(facts, variants), strict=True))

    def seconds(variant: DescribedVariant) -> float:
        return predicted[variant.descriptor]

    ranked = sorted(variants, key=seconds)
    if not ranked:
        return
    least, most = seconds(ranked[0]), max(count for start, count in _MOST if share >= start)
    yield from ranked[:most]
    if share >= _LARGE:
        yield from (first for first, *_ in groups(ranked, lambda each: each.traits.family))
    layouts = groups(ranked, lambda each: each.format_class)
    yield from (first for first, *_ in layouts if seconds(first) <= _NEAR * least)
