"""Fill the store: compile and measure what it does not know yet, and read back what it does."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from sartor.codegen.target import Target
from sartor.errors import CompileError
from sartor.runtime.device import physical_cores
from sartor.tuning.compile_job import CompiledUnit
from sartor.tuning.hardware import host
from sartor.tuning.measure_job import MeasureSettings, VariantSamples
from sartor.tuning.measurement import Measurement, MeasurementKey, Status, runtime_key
from sartor.tuning.store import Store
from sartor.tuning.unit import PROBE, Unit, source_hash
from sartor.tuning.workers import JobResult, JobStatus, WorkerPool

_COMPILE = "sartor.tuning.compile_job:compile_unit"
_MEASURE = "sartor.tuning.measure_job:measure_unit"


@dataclass(frozen=True)
class TuneSettings:
    """What to tune for, and within which limits.

    Attributes:
        target: device and architecture.
        measure: how to measure.
        compile_timeout: seconds for one unit.
        measure_timeout: seconds for one unit.
    """

    target: Target
    measure: MeasureSettings
    compile_timeout: float = 120.0
    measure_timeout: float = 60.0


Progress = Callable[[str, int, int], None]
"""Called with what is being done, how much of it is done, and how much there is."""


class Tuner:
    """Measures units into a store.

    Args:
        store: where measurements are kept; each is committed as soon as it is known.
        pool: workers that compile and measure.
        settings: what to tune for.
        progress: told about every unit.
    """

    def __init__(self, store: Store, pool: WorkerPool, settings: TuneSettings, progress: Progress) -> None:
        self._store = store
        self._pool = pool
        self._settings = settings
        self._progress = progress
        self._probe_path: Path | None = None

    def key(self, unit: Unit, descriptor: str) -> MeasurementKey:
        """Under what a variant of a unit is stored."""
        variant = next(each for each in unit.variants if each.descriptor == descriptor)
        return MeasurementKey(
            task=unit.key,
            variant=descriptor,
            source=source_hash(variant.implementation),
            hardware=host().key,
            threads=self._settings.measure.threads,
            runtime=runtime_key(),
            backend=self._settings.target.key,
        )

    def known(self, units: Iterable[Unit]) -> dict[str, dict[str, Measurement]]:
        """Stored measurements, by unit key and descriptor."""
        listed = list(units)
        keys = {
            (unit.key, each.descriptor): self.key(unit, each.descriptor) for unit in listed for each in unit.variants
        }
        found = self._store.get_many(keys.values())
        known: dict[str, dict[str, Measurement]] = {unit.key: {} for unit in listed}
        for (unit_key, descriptor), key in keys.items():
            if key in found:
                known[unit_key][descriptor] = found[key]
        return known

    def measure(self, units: Iterable[Unit]) -> dict[str, dict[str, Measurement]]:
        """Measure whatever is missing; then everything is known, failures included."""
        listed = list(units)
        known = self.known(listed)
        missing = [unit for unit in listed if len(known[unit.key]) < len(unit.variants)]
        if missing:
            with tempfile.TemporaryDirectory(prefix="sartor-") as directory:
                self._measure(missing, Path(directory))
        return self.known(listed)

    def _measure(self, units: list[Unit], directory: Path) -> None:
        """Unit by unit; where a whole unit crashed or hung, variant by variant, to see which is to blame."""
        failed = self._attempt(units, directory)
        for unit, result in failed:
            if len(unit.variants) == 1:
                self._blame(unit, result)
        apart = [part for unit, _ in failed if len(unit.variants) > 1 for part in _apart(unit)]
        for unit, result in self._attempt(apart, directory):
            self._blame(unit, result)

    def _attempt(self, units: list[Unit], directory: Path) -> list[tuple[Unit, JobResult]]:
        """Compile and measure; returns the units that took their worker with them."""
        failed: list[tuple[Unit, JobResult]] = []
        compiled: dict[int, CompiledUnit] = {}
        for done, (index, result) in enumerate(self._compile(units, directory), 1):
            self._progress("compiling", done, len(units))
            if result.status is JobStatus.OK:
                compiled[index] = result.value
                self._record_rejected(units[index], result.value)
            else:
                failed.append((units[index], result))
        common = {"settings": self._settings.measure, "probe": self._probe(directory)}
        jobs = [
            (str(index), {"unit": units[index], "modules": dict(each.modules), **common})
            for index, each in sorted(compiled.items())
            if each.modules
        ]
        timeout = self._settings.measure_timeout
        for done, result in enumerate(self._pool.map_unordered(_MEASURE, jobs, timeout, quiet=True), 1):
            self._progress("measuring", done, len(jobs))
            unit = units[int(result.job_id)]
            if result.status is JobStatus.OK:
                for descriptor, samples in result.value.items():
                    self._put(unit, descriptor, samples)
            else:
                failed.append((unit, result))
        return failed

    def _compile(self, units: list[Unit], directory: Path) -> Iterator[tuple[int, JobResult]]:
        """Largest first, so that no worker is left with a long job at the end."""
        ordered = sorted(range(len(units)), key=lambda index: -len(units[index].variants))
        target = self._settings.target
        jobs = [(str(index), {"unit": units[index], "target": target, "directory": directory}) for index in ordered]
        for result in self._pool.map_unordered(_COMPILE, jobs, self._settings.compile_timeout):
            yield int(result.job_id), result

    def _probe(self, directory: Path) -> Path:
        """The compiled probe.

        Raises:
            CompileError: if not even that compiles, so that nothing will.
        """
        if self._probe_path is None or not self._probe_path.exists():
            job = {"unit": PROBE, "target": self._settings.target, "directory": directory}
            (result,) = self._pool.map_unordered(_COMPILE, [("probe", job)], self._settings.compile_timeout)
            if result.status is not JobStatus.OK or not result.value.modules:
                reason = result.message or "; ".join(result.value.failures.values())
                raise CompileError(f"IREE cannot compile for {self._settings.target}: {reason}")
            (self._probe_path,) = result.value.modules.values()
        return self._probe_path

    def _record_rejected(self, unit: Unit, compiled: CompiledUnit) -> None:
        for descriptor, message in compiled.failures.items():
            self._put(unit, descriptor, VariantSamples(Status.COMPILE_FAILED, message=message))

    def _blame(self, unit: Unit, result: JobResult) -> None:
        """The last variant of a unit failed: it alone if the unit is candidate 0 by itself."""
        status = Status.CRASHED if result.status is JobStatus.FAILED else Status(result.status.value)
        self._put(unit, unit.variants[-1].descriptor, VariantSamples(status, message=result.message))

    def _put(self, unit: Unit, descriptor: str, samples: VariantSamples) -> None:
        self._store.put(
            Measurement(
                key=self.key(unit, descriptor),
                status=samples.status,
                samples=samples.samples,
                baseline_samples=samples.baseline,
                error=samples.error,
                message=samples.message,
                packed_bytes=samples.packed_bytes,
            )
        )


def _apart(unit: Unit) -> list[Unit]:
    """Candidate 0 alone, then each other variant beside it."""
    first, *others = unit.variants
    return [replace(unit, variants=(first,)), *(replace(unit, variants=(first, each)) for each in others)]


def default_threads() -> int:
    """As many as there are physical cores to run on."""
    return physical_cores()
