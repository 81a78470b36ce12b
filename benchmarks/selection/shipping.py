"""What of a tuning database becomes part of the package (``tuning/search/shipped``)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sartor.tuning.search.cost_model import Sample
from sartor.tuning.search.shipped.likeness import at_pace_of, guide


def extended(found: Iterable[Sample], known: Iterable[Sample]) -> list[Sample]:
    """Measured samples, and those of a file about tasks that were not measured now."""
    samples = list(found)
    measured = {sample.facts for sample in samples}
    return [*samples, *(sample for sample in known if sample.facts not in measured)]


def joined(known: Sequence[Sample], contributed: Sequence[Sample]) -> list[Sample]:
    """The package's samples, and those that another machine measured, at their pace, of tasks for which the package
    has none in the variant's type."""
    model = guide(contributed) if known else None
    found = contributed if model is None else at_pace_of(known, contributed, model)
    covered = {(sample.facts, sample.variant.dtype) for sample in known}
    return [*known, *(sample for sample in found if (sample.facts, sample.variant.dtype) not in covered)]
