"""What a machine measured, as times that may become part of the package: sizes of layers, variants and microseconds."""

from __future__ import annotations

from sartor.codegen.ir.target import Target
from sartor.errors import UsageError
from sartor.tuning.records.measurement import runtime_key
from sartor.tuning.search.cost_model import FEWEST_SAMPLES, Sample
from sartor.tuning.store.store import Store


def shippable(store: Store, target: Target, threads: int) -> list[Sample]:
    """This machine's times of variants, by this version of IREE, none of them measured beside other programs.

    Args:
        store: of full searches.
        target: what was tuned for.
        threads: their number that was tuned for.

    Raises:
        UsageError: if there are too few.
    """
    samples = [
        sample
        for measurement in store.measurements(here_only=True)
        if (measurement.key.threads, measurement.key.backend, measurement.key.runtime)
        == (threads, target.key, runtime_key())
        and not measurement.foreign_load
        and (sample := Sample.of(measurement)) is not None
    ]
    if len(samples) < FEWEST_SAMPLES:
        count = f"the database has {len(samples)} times for {target} on this machine, threads: {threads}"
        raise UsageError(f"{count}; tune networks with --search full first")
    return samples
