"""A campaign: runs batches in workers, isolates and shrinks their failures, and writes each to a folder."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sartor.codegen.digest import digest
from sartor.errors import CompileError
from sartor.progress import Progress, silent
from sartor.tuning.workers.entry_points import entry_point
from sartor.tuning.workers.pool import Job, JobResult, JobStatus, WorkerPool
from tools.fuzz.failures import WRONG, Failure
from tools.fuzz.jobs import (
    Batch,
    BrokenPlan,
    RefusedModel,
    WrongModel,
    attempt,
    draw_model,
    draw_plan,
    run_batch,
    write_plan,
)
from tools.fuzz.known_defects import known
from tools.fuzz.shrinking import shrunk
from tools.fuzz.trial import Wrong

ROUND = 4
"""Batches to run before their failures are examined."""

_BATCH_SECONDS, _SINGLE_SECONDS = 600.0, 180.0
_PROGRESS = "progress.jsonl"


@dataclass
class Tally:
    """Counts of a campaign.

    Attributes:
        models: number of models compared.
        plans: number of pairs of a model and a forced plan compared.
        failures: number of unexplained failures by signature.
        known: number of known defects by name.
        refused: number of models with an open dimension that were refused.
    """

    models: int = 0
    plans: int = 0
    failures: Counter[str] = field(default_factory=Counter)
    known: Counter[str] = field(default_factory=Counter)
    refused: int = 0

    def __str__(self) -> str:
        done = f"{self.models} models, {self.plans} forced plans"
        refused = f", {self.refused} refused at open sizes" if self.refused else ""
        return f"{done}, {self.failures.total()} failures, {self.known.total()} known ones{refused}"

    def add(self, other: Tally) -> None:
        """Add the counts of another tally."""
        self.models += other.models
        self.plans += other.plans
        self.failures.update(other.failures)
        self.known.update(other.known)
        self.refused += other.refused


class Campaign:
    """Runs batches and keeps their failures.

    Args:
        pool: the workers.
        folder: folder for failures and progress; with None nothing is written or shrunk.
        progress: is called with the number of finished batches.
    """

    def __init__(self, pool: WorkerPool, folder: Path | None = None, progress: Progress = silent) -> None:
        self._pool = pool
        self._folder = folder
        self._progress = progress
        self._done: set[str] = set()
        self.tally = Tally()
        self.found: dict[str, Failure] = {}
        """First failure of each signature."""
        self._resume()

    def run(self, batches: Iterable[Batch]) -> Tally:
        """Run the batches that are not done yet, and return the counts of the whole campaign."""
        pending = [batch for batch in batches if batch_key(batch) not in self._done]
        total = len(pending)
        while pending:
            self._progress(str(self.tally), total - len(pending), total)
            self._round(pending[:ROUND])
            pending = pending[ROUND:]
        self._progress(str(self.tally), total, total)
        return self.tally

    def _round(self, batches: Sequence[Batch]) -> None:
        # Consume all results first: the pool handles one map at a time.
        for batch, result in list(self._results(batches, _BATCH_SECONDS)):
            tally = Tally(len(batch.models), len(batch.models) * sum(plan.seed is not None for plan in batch.plans))
            tally.refused = sum(isinstance(each, RefusedModel) for each in result.value or ())
            for failure in self._failures(batch, result):
                self._keep(failure, tally)
            self.tally.add(tally)
            self._record(batch, tally)

    def _results(self, batches: Sequence[Batch], seconds: float) -> Iterator[tuple[Batch, JobResult]]:
        named = {batch_key(batch): batch for batch in batches}
        jobs: list[Job] = [(key, {"batch": each}) for key, each in named.items()]
        for result in self._pool.map_unordered(entry_point(run_batch), jobs, seconds):
            yield named[result.job_id], result

    def _failures(self, batch: Batch, result: JobResult) -> Iterator[Failure]:
        """Yield the failures of a batch; if the whole job failed, run its parts to find them.

        If all parts pass, the batch as a whole is the failure, unless its job was disturbed.
        """
        if result.status is JobStatus.OK:
            for each in result.value:
                if isinstance(each, BrokenPlan):
                    yield from self._isolated(replace(batch, plans=(each.plan,)), _failed(result, each))
                elif isinstance(each, WrongModel):
                    yield self._wrong(batch, each)
        else:
            yield from self._isolated(batch, result)

    def _isolated(self, batch: Batch, result: JobResult) -> Iterator[Failure]:
        """Yield the failures of a batch that failed as a whole; run its parts to find them."""
        self._progress(f"a batch of {len(batch.models)} ended as {result.status.value}", 0, len(batch.models))
        parts = list(_parts(batch, result.message))
        if not parts:
            yield self._broken(batch, result)
            return
        tried = list(self._results(parts, _SINGLE_SECONDS))
        found = [failure for part, again in tried for failure in self._failures(part, again)]
        yield from found
        if not found and not result.status.is_transient:
            yield from self._together(batch, result)

    def _together(self, batch: Batch, result: JobResult) -> Iterator[Failure]:
        """Yield the whole batch as a failure, by each plan that fails alone, or else by its last plan."""
        alone = [replace(batch, plans=(plan,)) for plan in batch.plans]
        tried = [(part, _whole(again)) for part, again in self._results(alone, _BATCH_SECONDS)]
        failing = [(part, again) for part, again in tried if again.status is not JobStatus.OK]
        for part, again in failing or [(alone[-1], result)]:
            yield self._broken(part, again)

    def _wrong(self, batch: Batch, found: WrongModel) -> Failure:
        model = self._call(draw_model, batch=replace(batch, models=(found.model,)))
        return Failure(WRONG, found.wrong.message, model, found.wrong.forced, found.plan.setting)

    def _broken(self, batch: Batch, result: JobResult) -> Failure:
        (plan,) = batch.plans
        model = self._call(draw_model, batch=batch)
        try:
            forced = self._call(draw_plan, model=model, plan=plan)
        except CompileError:
            # The failure occurs before a plan exists.
            forced = {}
        return Failure(result.status.value, result.message, model, forced, plan.setting)

    def _keep(self, failure: Failure, tally: Tally) -> None:
        """Count a failure; shrink and write the first failure of a signature."""
        is_new = failure.kind == WRONG or failure.signature not in self.found
        if known(failure) is None and is_new and self._folder is not None:
            failure = shrunk(failure, self._again)
        defect, signature = known(failure), failure.signature
        if defect is not None:
            tally.known[defect.name] += 1
            return
        tally.failures[signature] += 1
        if self.found.setdefault(signature, failure) is failure and self._folder is not None:
            self._write(failure, self._folder / digest(signature)[:8])

    def _write(self, failure: Failure, folder: Path) -> None:
        failure.write(folder)
        if failure.forced is not None:
            job = {"model": failure.model, "forced": failure.forced, "setting": failure.setting}
            # A failure that occurs before a plan exists has none.
            with suppress(CompileError):
                self._call(write_plan, **job, path=(folder / "plan.json").resolve())

    def _again(self, failure: Failure) -> Failure | None:
        """Run a failure again; return the new failure, or None if there is none or a different one."""
        job = {"model": failure.model, "forced": failure.forced, "setting": failure.setting}
        (result,) = self._pool.map_unordered(entry_point(attempt), [("attempt", job)], _SINGLE_SECONDS)
        if result.status is JobStatus.OK:
            return _shown(failure, result.value) if failure.kind == WRONG else None
        found = replace(failure, kind=result.status.value, message=result.message)
        return found if found.signature == failure.signature else None

    def _call(self, function: Any, **arguments: Any) -> Any:
        (result,) = self._pool.map_unordered(entry_point(function), [("call", arguments)], _SINGLE_SECONDS)
        if result.status is not JobStatus.OK:
            raise result.error(function.__name__)
        return result.value

    def _record(self, batch: Batch, tally: Tally) -> None:
        self._done.add(batch_key(batch))
        if self._folder is None:
            return
        line: dict[str, object] = {"batch": batch_key(batch), "models": tally.models, "plans": tally.plans}
        line |= {"refused": tally.refused, "failures": dict(tally.failures), "known": dict(tally.known)}
        with (self._folder / _PROGRESS).open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def _resume(self) -> None:
        """Load the batches and counts that the folder records."""
        if self._folder is None:
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        for line in _whole_lines(self._folder / _PROGRESS):
            said = json.loads(line)
            self._done.add(said["batch"])
            counted = {name: Counter(said[name]) for name in ("failures", "known")}
            self.tally.add(Tally(said["models"], said["plans"], **counted, refused=said.get("refused", 0)))


def _whole_lines(path: Path) -> list[str]:
    """Return the lines of a file; cut off a last line that a killed process left unfinished."""
    content = path.read_bytes() if path.exists() else b""
    whole = content[: content.rfind(b"\n") + 1]
    if whole != content:
        os.truncate(path, len(whole))
    return whole.decode("utf-8").splitlines()


def _failed(result: JobResult, broken: BrokenPlan) -> JobResult:
    """Return the result of a job as if it had failed by one of its plans."""
    return replace(result, status=JobStatus.FAILED, value=None, message=" ".join(broken.message.split()))


def _whole(result: JobResult) -> JobResult:
    """Return the result of a job with one plan; it failed if the plan did."""
    broken = [each for each in result.value or () if isinstance(each, BrokenPlan)]
    return _failed(result, broken[0]) if broken else result


def batch_key(batch: Batch) -> str:
    """Return an identifier of a batch that is the same in every run."""
    return digest(repr(batch))


def _parts(batch: Batch, message: str) -> Iterator[Batch]:
    """Split a failed batch into the models that the message names and the others, or in halves, or by plan."""
    models, plans = batch.models, batch.plans
    named = tuple(model for model in models if f"m{model}_" in message)
    if len(models) > 1:
        first = named if 0 < len(named) < len(models) else models[: len(models) // 2]
        rest = tuple(model for model in models if model not in first)
        yield from (replace(batch, models=each) for each in (first, rest))
    elif len(plans) > 1:
        yield from (replace(batch, plans=(plan,)) for plan in plans)


def _shown(failure: Failure, wrong: Sequence[Wrong]) -> Failure | None:
    """Return a failure with the message and layers of its smaller model's first wrong output; None if all are right."""
    if not wrong:
        return None
    left = failure.forced
    if left is not None:
        layers = wrong[0].forced or {}
        left = {layer: variant for layer, variant in left.items() if layer in layers}
    return replace(failure, message=wrong[0].message, forced=left)
