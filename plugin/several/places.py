"""Where the plans of a file are made: on this machine, or each target on the workers that run it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from sartor.codegen.ir.target import Target
from sartor.config import CompileConfig
from sartor.costing.machines import Machines, machines_of, own_hardware
from sartor.costing.time_budget import TimeBudget
from sartor.frontend.loading import open_workspace
from sartor.frontend.target_check import check_target
from sartor.profiling.compilation.bench import Bench
from sartor.progress import Progress
from sartor.tuning.store.store import Store
from sartor.tuning.workers.pool import WorkerPool


@dataclass(frozen=True)
class Place:
    """Where the plans of a target are made.

    Attributes:
        config: settings for the target and its machines.
        pool: workers.
        directory: for temporary files.
        store: the tuning database.
        machines: those that measure.
    """

    config: CompileConfig
    pool: WorkerPool
    directory: Path
    store: Store
    machines: Machines

    def bench(self, number: int, share: float, progress: Progress) -> Bench:
        """What a plan is made with.

        Args:
            number: of the plan, in the file.
            share: of the time budget.
            progress: told about every step.
        """
        own = self.directory / f"plans{number}"
        own.mkdir()
        seconds = self.config.time_budget
        budget = TimeBudget.of(None if seconds is None else seconds * share)
        return Bench(self.pool, own, self.store, budget, progress)


def open_places(base: CompileConfig, targets: Sequence[Target], stack: ExitStack) -> Mapping[str, Place]:
    """Where the plans of each target, by its name, are made; ``stack`` closes them.

    On this machine all have the same workers. Elsewhere each target is measured on the machines of one kind that run
    it, so that its plans are of one kind of machine.

    Raises:
        UsageError: if the compiler does not know a target, or it is not known which machines are meant.
        DeviceError: if no machine that suits is connected.
    """
    if base.workers is not None:
        return {str(target): _elsewhere(replace(base, target=target), stack) for target in targets}
    end = TimeBudget.of(base.time_budget).patience
    pool, directory = stack.enter_context(open_workspace(targets[0], base.jobs, end=end))
    for target in targets[1:]:
        check_target(target, pool)
    places, stores = {}, dict[str | None, Store]()
    for target in targets:
        hardware = own_hardware(target.device)
        if hardware not in stores:
            stores[hardware] = stack.enter_context(Store.open(base.database, goes_on=True, hardware=hardware))
        places[str(target)] = Place(replace(base, target=target), pool, directory, stores[hardware], Machines())
    return places


def _elsewhere(config: CompileConfig, stack: ExitStack) -> Place:
    machines = stack.enter_context(machines_of(config))
    end = TimeBudget.of(config.time_budget).patience
    pool, directory = stack.enter_context(open_workspace(config.target, config.jobs, machines.opening, end))
    store = stack.enter_context(Store.open(config.database, goes_on=True, hardware=machines.hardware))
    return Place(machines.settings(config), pool, directory, store, machines)
