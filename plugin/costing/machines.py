"""Where a compilation measures: on this machine, or on the workers of a Dask scheduler."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

from sartor.config import CompileConfig
from sartor.devices import is_cpu
from sartor.errors import UsageError
from sartor.runtime.driver.device import list_devices
from sartor.tuning.measuring.compile_job import compile_cases
from sartor.tuning.records.hardware import host, with_gpus
from sartor.tuning.workers.calls import Opening
from sartor.tuning.workers.entry_points import entry_point


@dataclass(frozen=True)
class Machines:
    """Where is measured.

    Attributes:
        opening: as for ``open_pool``; None for this machine.
        hardware: as for ``Store.open``; None for this machine.
        threads: CPU threads that suit the machines; None for this one.
    """

    opening: Opening | None = None
    hardware: str | None = None
    threads: int | None = None

    @property
    def are_elsewhere(self) -> bool:
        """Whether other machines measure."""
        return self.opening is not None

    def settings(self, config: CompileConfig) -> CompileConfig:
        """The settings for these machines: their number of threads, unless the user named one."""
        return config if self.threads is None or config.fixes_threads else replace(config, threads=self.threads)


def own_hardware(device: str) -> str | None:
    """As of ``Machines``: GPUs of one architecture differ, and one may be exchanged, so their names are part of it."""
    names = [f"{device}:{listed.name}" for listed in list_devices() if listed.spec.partition(":")[0] == device]
    return None if is_cpu(device) or not names else with_gpus(host().key, names)


@contextmanager
def machines_of(config: CompileConfig) -> Iterator[Machines]:
    """Where the settings say that is measured.

    Raises:
        UsageError: if Dask is not installed, or several kinds of machines are connected and none is named.
        DeviceError: if no machine that suits is connected.
    """
    if config.workers is None:
        yield Machines(hardware=own_hardware(config.target.device))
        return
    try:
        from sartor.tuning.cluster.link import Scheduler
        from sartor.tuning.cluster.party import find_cluster, remote_pool
    except ImportError as error:
        raise UsageError(f"--workers needs Dask ({error}); install it by: pip install 'sartor[cluster]'") from None
    with find_cluster(Scheduler.of(config.workers), config.target, config.tune_for) as cluster:
        opening = partial(remote_pool, cluster, compiled_there=(entry_point(compile_cases),))
        yield Machines(opening, cluster.hardware, cluster.threads)
