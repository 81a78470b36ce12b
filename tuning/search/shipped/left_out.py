"""What a file of times says of variants by leaving them out.

It holds no times far above their task's fastest (``times.near_best``). Candidate 0, which is code by IREE, is measured
of every task, so where it has no time it took that much at least. A model that learned from the times alone would know
of such code only where it is fast, and expect that everywhere.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from sartor.codegen.routine_registry import all_routines, described
from sartor.tuning.search.cost_model import Sample
from sartor.tuning.search.shipped.times import MOST_SLOWDOWN

_OWN = "f32"


def left_out(samples: Iterable[Sample]) -> list[Sample]:
    """Candidate 0 of each task that samples near its fastest lack, with the least that it may have taken."""
    tasks: defaultdict[str, list[Sample]] = defaultdict(list)
    for sample in samples:
        tasks[sample.facts].append(sample)
    return [variant_left_out for facts, listed in tasks.items() for variant_left_out in _of_task(facts, listed)]


def _of_task(facts: str, listed: list[Sample]) -> Iterator[Sample]:
    first = all_routines()[0].name
    heads = {sample.variant.descriptor.partition(".")[0] for sample in listed if sample.variant.dtype == _OWN}
    if heads and all(sample.variant.routine != first for sample in listed):
        least = min(sample.seconds for sample in listed)
        yield Sample(facts, described(f"{min(heads)}.{first}"), MOST_SLOWDOWN * least)
