"""What one compilation makes plans with."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

from sartor.costing.time_budget import TimeBudget
from sartor.frontend.imported_model import ImportedModel
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
        imported: models that were imported, so that what is kept of them can be forgotten if it is wrong.
    """

    pool: WorkerPool
    directory: Path
    store: Store
    time: TimeBudget
    progress: Progress
    imported: list[ImportedModel] = field(default_factory=list)

    def for_part(self, count: int) -> Bench:
        """The same for the first of ``count`` plans that share what is left of the time."""
        return replace(self, time=self.time.part(count))
