"""Finds measurements that contradict what many networks on such machines took, and that decide.

A virtual machine's processors are taken away for a second, or share a core with somebody else's, and the system does
not say so. Variants that are timed in turn meanwhile look several times slower than they are, those of the whole task
or some, and only another measurement shows it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

from sartor.tuning.search.cost_model import CostModel, Sample
from sartor.tuning.search.searched import Picks, Searched, Times
from sartor.tuning.search.shipped.likeness import kin

# The model errs by a tenth or two; disturbances double times.
_FAR = 1.5
# The median of fewer ratios may be that of a few odd layers.
_FEWEST_RATIOS = 8


def surprising(tasks: Sequence[Searched], known: Times, shipped: Sequence[Sample], model: CostModel) -> Picks:
    """The variants that were expected to be faster than all that were measured of their task, and were far slower.

    Args:
        tasks: that were searched.
        known: measured times.
        shipped: what the model was trained on: of other variants it knows nothing.
        model: the ``guide``, whose pace is that of another machine.
    """
    seen = {kin(sample.variant) for sample in shipped}
    expected = {task.key: _expected(task, known, seen, model) for task in tasks}
    ratios = [
        taken / foreseen[name]
        for key, foreseen in expected.items()
        for name, taken in known[key].items()
        if taken is not None and name in foreseen
    ]
    if len(ratios) < _FEWEST_RATIOS:
        return {}
    pace = median(ratios)
    far_off = {
        key: _far(known[key], {name: pace * seconds for name, seconds in expected[key].items()}) for key in expected
    }
    return {key: names for key, names in far_off.items() if names}


def _expected(task: Searched, known: Times, seen: set[tuple[object, ...]], model: CostModel) -> Mapping[str, float]:
    """What the model expects of a task's measured variants."""
    asked = [
        variant
        for variant in task.variants[1:]
        if known[task.key].get(variant.descriptor) is not None and not variant.traits.is_free and kin(variant) in seen
    ]
    return (
        dict(zip((variant.descriptor for variant in asked), model.seconds(task.facts, asked), strict=True))
        if asked
        else {}
    )


def _far(taken: Mapping[str, float | None], expected: Mapping[str, float]) -> tuple[str, ...]:
    """The variants that took far longer than expected, where that would have been the least time."""
    least = min((seconds for seconds in taken.values() if seconds is not None), default=0.0)
    return tuple(
        name
        for name, foreseen in expected.items()
        if foreseen < least and (seconds := taken[name]) is not None and seconds > _FAR * foreseen
    )
