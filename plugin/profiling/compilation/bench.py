"""What one compilation makes plans with."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sartor.costing.time_budget import TimeBudget
from sartor.progress import Progress
from sartor.tuning.store.store import Store
from sartor.tuning.workers.pool import WorkerPool


@dataclass(frozen=True)
class Bench:
    """What plans are made with.

    Attributes:
        pool: workers.
        directory: for temporary files.
        store: the tuning database.
        time: the time budget.
        progress: told about every step.
    """

    pool: WorkerPool
    directory: Path
    store: Store
    time: TimeBudget
    progress: Progress
