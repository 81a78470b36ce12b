"""The last check: a worker runs a module and ONNX Runtime side by side, sample by sample.

If modules run on another machine, one worker runs the module there, and another ONNX Runtime here.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import islice
from pathlib import Path

from sartor.codegen.ir.layer import NetworkValue
from sartor.errors import SartorError
from sartor.progress import Progress
from sartor.reference.expected_outputs import Expectation, Expected, KnownOutputs
from sartor.reference.tied_codes import settled
from sartor.runtime.driver.bound_input import BoundInput
from sartor.runtime.driver.counts import shown_outputs
from sartor.runtime.driver.signature import Array
from sartor.runtime.session import Session
from sartor.samples.given_samples import SampleSource
from sartor.tuning.errors.error_measures import ErrorMeasure, MeasureKind
from sartor.tuning.networks.net_files import NetFiles
from sartor.tuning.networks.profile_job import Example, worst_output
from sartor.tuning.networks.sample_runs import SampleRun, run_samples
from sartor.tuning.records.signature import net_signature
from sartor.tuning.workers.calls import call
from sartor.tuning.workers.pool import WorkerPool
from sartor.tuning.workers.protocol import WorkerError

# Samples that travel together.
_TOGETHER = 4


@dataclass(frozen=True)
class Check:
    """A compiled network, the models to compare it with, and the samples.

    Attributes:
        files: the compiled network.
        values: network inputs and outputs.
        models: the user's file, and the prepared model, which replaces it if ONNX Runtime cannot load that file.
        samples: inputs.
        count: number of samples to use.
        measure: of the outputs' error.
        narrow: whether the network computes in narrower types than the model.
        device: as for ``open_device``.
        threads: as for ``open_device``.
        bound: inputs with a fixed value, which only the user's file takes.
        first: the first sample with its reference outputs, if this compilation computed them already.
        coded: the outputs that hold codes of caches in 8 bits.
    """

    files: NetFiles
    values: tuple[tuple[NetworkValue, ...], tuple[NetworkValue, ...]]
    models: tuple[Path, Path | bytes]
    samples: SampleSource
    count: int
    measure: ErrorMeasure
    narrow: bool
    device: str
    threads: int
    bound: tuple[BoundInput, ...] = ()
    first: Example | None = None
    coded: frozenset[str] = frozenset()

    def settled(self, outputs: Sequence[Array], expected: Sequence[Array]) -> list[Array]:
        """The outputs of a module, in which codes within ties are those expected."""
        return settled(outputs, expected, output_names(self), self.coded)


@dataclass(frozen=True)
class Verified:
    """Results of a comparison, one number for each sample.

    Attributes:
        errors: of the outputs.
        seconds: of one inference of the module.
        refused: the reason why ONNX Runtime could not load the user's file, one sentence; empty if it could.
        where: in which output the largest error is, as ``worst_output`` writes it.
        described: who computed the reference outputs, as messages say it; empty if they were known before.
    """

    errors: tuple[float, ...] = ()
    seconds: tuple[float, ...] = ()
    refused: tuple[str, ...] = ()
    where: str = ""
    described: str = ""

    @property
    def done(self) -> int:
        """Number of samples on which the module ran."""
        return len(self.errors)

    def __add__(self, other: Verified) -> Verified:
        refused = self.refused or other.refused
        worse = other if max(other.errors, default=0.0) > max(self.errors, default=0.0) else self
        described = self.described or other.described
        return Verified(self.errors + other.errors, self.seconds + other.seconds, refused, worse.where, described)


def verify(check: Check, before: Verified, seconds: float) -> Verified | WorkerError:
    """Compare on further samples after those in ``before``, at least one, until ``seconds`` have passed.

    If models were loaded, it goes on for as long as that took: the next call may have to load them again.
    """
    try:
        return before + _verify(check, before.done, time.monotonic() + seconds)
    except SartorError as error:
        return WorkerError(error)


@dataclass(frozen=True)
class Computed:
    """How many samples ONNX Runtime alone has run."""

    done: int = 0


def compute_references(check: Check, before: Computed, seconds: float) -> Computed | WorkerError:
    """Run ONNX Runtime on further samples after those in ``before``, at least one, until ``seconds`` have passed."""
    deadline, done = time.monotonic() + seconds, before.done
    try:
        run = Expectation(check.models, check.models[-1], threads=check.threads, narrow=check.narrow, bound=check.bound)
        for feeds in islice(check.samples.since(done), check.count - done):
            run(feeds)
            done += 1
            if time.monotonic() >= deadline:
                break
    except SartorError as error:
        return WorkerError(error)
    return Computed(done)


def samples_to_run(check: Check, before: Verified, most: int) -> list[Mapping[str, Array]] | WorkerError:
    """Further samples after those in ``before``, at most so many, for a module that runs elsewhere."""
    try:
        return list(islice(check.samples.since(before.done), min(most, check.count - before.done)))
    except SartorError as error:
        return WorkerError(error)


def judge(check: Check, before: Verified, runs: Sequence[SampleRun]) -> Verified | WorkerError:
    """Compare the outputs of a module that ran elsewhere on further samples after those in ``before``."""
    try:
        references, so_far = references_of(check), before
        for feeds, run in zip(check.samples.since(before.done), runs, strict=False):
            expected = references(feeds)
            outputs = check.settled(run.outputs, expected.outputs)
            error = check.measure.of_sample(outputs, expected.outputs, expected.scales, output_names(check))
            where = where_of(check, outputs, expected.outputs, expected.scales)
            so_far += Verified((error,), (run.seconds,), where=where)
        if so_far.done == check.count:
            references.unload()
        return so_far + Verified(refused=references.refused, described=references.described)
    except SartorError as error:
        return WorkerError(error)


def output_names(check: Check) -> list[str]:
    """The names of the outputs that are compared."""
    return [spec.name for spec in shown_outputs(net_signature(check.values).outputs)]


def where_of(check: Check, outputs: Sequence[Array], expected: Sequence[Array], scales: Sequence[Array]) -> str:
    """As of ``Verified``. Other measures than the relative error may not be those of single outputs."""
    is_relative = check.measure.kind is MeasureKind.RELATIVE
    return worst_output(net_signature(check.values), outputs, expected, scales) if is_relative else ""


class References:
    """The reference outputs of samples, by ONNX Runtime where they are not known.

    Loading a large model takes longer than many inferences, and one module after the other is compared on the same
    samples. So what was loaded is kept until all samples were compared, and what was computed for the next module.

    Args:
        models, threads, narrow, bound: as of ``Check``.

    Attributes:
        refused, described: as of ``Verified``.
        seconds: that loading took.
    """

    def __init__(
        self, models: tuple[Path, Path | bytes], threads: int, narrow: bool, bound: tuple[BoundInput, ...]
    ) -> None:
        self._load = partial(Expectation, models, models[-1], threads=threads, narrow=narrow, bound=bound)
        self._loaded: Expectation | None = None
        self._known = KnownOutputs()
        self.refused: tuple[str, ...] = ()
        self.described = ""
        self.seconds = 0.0

    def __call__(self, feeds: Mapping[str, Array]) -> Expected:
        """The outputs of a sample, and their scales.

        Raises:
            SartorError: if ONNX Runtime fails on the model.
        """
        return self._known.of(feeds, self._computed)

    def _computed(self, feeds: Mapping[str, Array]) -> Expected:
        if self._loaded is None:
            begin = time.monotonic()
            self._loaded = self._load()
            self.seconds += time.monotonic() - begin
            self.refused = tuple(self._loaded.refused)
        expected = self._loaded(feeds)
        # What ONNX Runtime loads and fails to run is known after the run.
        self.described = self._loaded.described
        return expected

    def unload(self) -> None:
        """Free the memory that the models take."""
        self._loaded = None


@lru_cache(maxsize=1)
def _references(
    models: tuple[Path, Path | bytes], threads: int, narrow: bool, bound: tuple[BoundInput, ...]
) -> References:
    return References(models, threads, narrow, bound)


def references_of(check: Check) -> References:
    """The reference outputs of a check's samples."""
    return _references(check.models, check.threads, check.narrow, check.bound)


def _verify(check: Check, start: int, deadline: float) -> Verified:
    references = references_of(check)
    files, before = check.files, references.seconds
    signature = net_signature(check.values)._replace(entry=files.entry)
    device = files.open_device(check.device, check.threads)
    so_far = Verified()
    session = Session(files.module, device=device, signature=signature, parameters=files.parameters, huge_pages=False)
    with session:
        for feeds in check.samples.since(start):
            right = (check.first if start + so_far.done == 0 else None) or references(feeds)
            begin = time.perf_counter()
            outputs = session.run(None, dict(feeds))
            taken = time.perf_counter() - begin
            outputs = check.settled(outputs, right.outputs)
            error = check.measure.of_sample(outputs, right.outputs, right.scales, output_names(check))
            so_far += Verified((error,), (taken,), where=where_of(check, outputs, right.outputs, right.scales))
            if start + so_far.done == check.count:
                references.unload()
                break
            if time.monotonic() >= deadline + 2 * (references.seconds - before):
                break
    return so_far + Verified(refused=references.refused, described=references.described)


def verify_elsewhere(pool: WorkerPool, check: Check, step: str, progress: Progress) -> Verified:
    """As ``verify`` on all samples, with a pool that measures elsewhere.

    Raises:
        DeviceError: if the module does not run there.
        SartorError: if the samples cannot be read, or the user's measure fails on them.
        CompileError: if a worker dies.
    """
    so_far = Verified()
    while so_far.done < check.count:
        progress(step, so_far.done, check.count)
        drawn = call(pool, samples_to_run, {"check": check, "before": so_far, "most": _TOGETHER}, step)
        job = {"files": check.files, "values": check.values, "feeds": drawn}
        runs = call(pool, run_samples, {**job, "device": check.device, "threads": check.threads}, step, quiet=True)
        so_far = call(pool, judge, {"check": check, "before": so_far, "runs": runs}, step)
    progress(step, check.count, check.count)
    return so_far
