"""The last check: a worker runs a module and ONNX Runtime side by side, sample by sample.

If modules run on another machine, one worker runs the module there, and another ONNX Runtime here.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path

from sartor.codegen.ir.layer import NetworkValue
from sartor.errors import SartorError
from sartor.progress import Progress
from sartor.reference.expected_outputs import Expectation
from sartor.runtime.driver.bound_input import BoundInput
from sartor.runtime.driver.signature import Array
from sartor.runtime.session import Session
from sartor.samples.given_samples import SampleSource
from sartor.tuning.errors.error_measures import ErrorMeasure, MeasureKind
from sartor.tuning.networks.net_files import NetFiles
from sartor.tuning.networks.profile_job import Example, worst_output
from sartor.tuning.networks.sample_runs import SampleRun, run_samples
from sartor.tuning.records.signature import net_signature
from sartor.tuning.workers.calls import WorkerError, call
from sartor.tuning.workers.pool import WorkerPool

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


@dataclass(frozen=True)
class Verified:
    """Results of a comparison, one number for each sample.

    Attributes:
        errors: of the outputs.
        seconds: of one inference of the module.
        refused: the reason why ONNX Runtime could not load the user's file, one sentence; empty if it could.
        where: in which output the largest error is, as ``worst_output`` writes it.
    """

    errors: tuple[float, ...] = ()
    seconds: tuple[float, ...] = ()
    refused: tuple[str, ...] = ()
    where: str = ""

    @property
    def done(self) -> int:
        """Number of samples on which the module ran."""
        return len(self.errors)

    def __add__(self, other: Verified) -> Verified:
        refused = self.refused or other.refused
        worse = other if max(other.errors, default=0.0) > max(self.errors, default=0.0) else self
        return Verified(self.errors + other.errors, self.seconds + other.seconds, refused, worse.where)


def verify(check: Check, before: Verified, seconds: float) -> Verified | WorkerError:
    """Compare on further samples after those in ``before``, at least one, until ``seconds`` have passed."""
    try:
        return before + _verify(check, before.done, time.monotonic() + seconds)
    except SartorError as error:
        return WorkerError(error)


def samples_to_run(check: Check, before: Verified, most: int) -> list[Mapping[str, Array]] | WorkerError:
    """Further samples after those in ``before``, at most so many, for a module that runs elsewhere."""
    try:
        return list(islice(check.samples.since(before.done), min(most, check.count - before.done)))
    except SartorError as error:
        return WorkerError(error)


def judge(check: Check, before: Verified, runs: Sequence[SampleRun]) -> Verified | WorkerError:
    """Compare the outputs of a module that ran elsewhere on further samples after those in ``before``."""
    try:
        expectation = _expectation(check)
        found = before + Verified(refused=tuple(expectation.refused))
        for feeds, run in zip(check.samples.since(before.done), runs, strict=False):
            expected = expectation(feeds)
            error = check.measure.of_sample(run.outputs, expected.outputs, expected.scales)
            where = _where(check, run.outputs, expected.outputs, expected.scales)
            found += Verified((error,), (run.seconds,), where=where)
        return found
    except SartorError as error:
        return WorkerError(error)


def _where(check: Check, outputs: Sequence[Array], expected: Sequence[Array], scales: Sequence[Array]) -> str:
    """As of ``Verified``. Other measures than the relative error may not be those of single outputs."""
    is_relative = check.measure.kind is MeasureKind.RELATIVE
    return worst_output(net_signature(check.values), outputs, expected, scales) if is_relative else ""


def _expectation(check: Check) -> Expectation:
    return Expectation(check.models, check.models[-1], threads=check.threads, narrow=check.narrow, bound=check.bound)


class _References:
    """The reference outputs of samples, by ONNX Runtime where they are not known.

    Args:
        check: what to check.
    """

    def __init__(self, check: Check) -> None:
        self._check = check

    @cached_property
    def _expectation(self) -> Expectation:
        return _expectation(self._check)

    def of(self, number: int, feeds: Mapping[str, Array]) -> tuple[Sequence[Array], Sequence[Array]]:
        """The outputs of a sample, and their scales."""
        first = self._check.first
        if number == 0 and first is not None:
            return first.outputs, first.scales
        expected = self._expectation(feeds)
        return expected.outputs, expected.scales

    @property
    def refused(self) -> tuple[str, ...]:
        """As of ``Verified``."""
        known = "_expectation" in vars(self)
        return tuple(self._expectation.refused) if known else ()


def _verify(check: Check, start: int, deadline: float) -> Verified:
    references = _References(check)
    files = check.files
    signature = net_signature(check.values)._replace(entry=files.entry)
    device = files.open_device(check.device, check.threads)
    found = Verified()
    session = Session(files.module, device=device, signature=signature, parameters=files.parameters, huge_pages=False)
    with session:
        for feeds in check.samples.since(start):
            expected, scales = references.of(start + found.done, feeds)
            begin = time.perf_counter()
            outputs = session.run(None, dict(feeds))
            taken = time.perf_counter() - begin
            error = check.measure.of_sample(outputs, expected, scales)
            found += Verified((error,), (taken,), where=_where(check, outputs, expected, scales))
            if start + found.done == check.count or time.monotonic() >= deadline:
                break
    return found + Verified(refused=references.refused)


def verify_elsewhere(pool: WorkerPool, check: Check, step: str, progress: Progress) -> Verified:
    """As ``verify`` on all samples, with a pool that measures elsewhere.

    Raises:
        DeviceError: if the module does not run there.
        SartorError: if the samples cannot be read, or the user's measure fails on them.
        CompileError: if a worker dies.
    """
    found = Verified()
    while found.done < check.count:
        progress(step, found.done, check.count)
        drawn = call(pool, samples_to_run, {"check": check, "before": found, "most": _TOGETHER}, step)
        job = {"files": check.files, "values": check.values, "feeds": drawn}
        runs = call(pool, run_samples, {**job, "device": check.device, "threads": check.threads}, step, quiet=True)
        found = call(pool, judge, {"check": check, "before": found, "runs": runs}, step)
    progress(step, check.count, check.count)
    return found
