"""What of a tuning database becomes part of the package (``tuning/search/shipped``)."""

from __future__ import annotations

from collections.abc import Iterable

from sartor.codegen.ir.target import Target
from sartor.errors import UsageError
from sartor.tuning.records.measurement import runtime_key
from sartor.tuning.search.cost_model import FEWEST_SAMPLES, Sample
from sartor.tuning.store.store import Store


def shippable(store: Store, target: Target) -> list[Sample]:
    """This machine's times of variants, by this version of IREE, none of them measured beside other programs.

    Args:
        store: of full searches.
        target: whose number of threads was tuned for.

    Raises:
        UsageError: if there are too few.
    """
    found = [
        sample
        for each in store.measurements(here_only=True)
        if (each.key.threads, each.key.backend, each.key.runtime) == (target.threads, target.key, runtime_key())
        and not each.foreign_load
        and (sample := Sample.of(each)) is not None
    ]
    if len(found) < FEWEST_SAMPLES:
        raise UsageError(f"the database has {len(found)} times for {target}, {target.threads} threads; tune networks")
    return found


def extended(found: Iterable[Sample], known: Iterable[Sample]) -> list[Sample]:
    """Measured samples, and those of a file about tasks that were not measured now."""
    samples = list(found)
    measured = {sample.facts for sample in samples}
    return [*samples, *(sample for sample in known if sample.facts not in measured)]
