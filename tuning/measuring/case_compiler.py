"""Compiles cases for measuring: several in one module, and several modules side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from sartor.codegen.ir.target import Target
from sartor.errors import CompileError
from sartor.tuning.measuring.benchmark_case import PROBE, BenchmarkCase
from sartor.tuning.measuring.compile_job import CompiledCase, batched, compile_cases, divided
from sartor.tuning.workers.entry_points import entry_point
from sartor.tuning.workers.pool import JobResult, JobStatus, WorkerPool

_COMPILE = entry_point(compile_cases)
# Each process that compiles at a time gets about so many pieces of a round, and none is smaller than this.
_PIECES, _LEAST_IN_A_PIECE = 2, 4
# Each process that compiles at a time gets about so many compilations of a round, of so many variants: more would take
# long to repeat if one variant ends the process, fewer do not pay for what every compilation costs, and a second one
# costs more than what processes wait for each other at the end.
_BATCHES, _LEAST_IN_A_BATCH, _LEAST_IN_A_SECOND, _MOST_IN_A_BATCH = 2, 4, 6, 24
# Time to measure a case that was compiled.
_MEASURING_SECONDS = 0.25

CompiledPiece = tuple[int, CompiledCase | None, JobResult]
"""The index of what was compiled, its modules, or None if the process ended or took too long, and the job's result."""


@dataclass
class CaseCompiler:
    """Compiles by the processes of a pool.

    Attributes:
        pool: workers that compile.
        target: what modules are compiled for.
        timeout: seconds for one compilation.
        deadline: by ``time.monotonic()``, of compiling and measuring; None for no deadline.
    """

    pool: WorkerPool
    target: Target
    timeout: float
    deadline: float | None
    _probe_path: Path | None = field(default=None, init=False)
    _parts_probe: bool = field(default=False, init=False)

    @property
    def at_once(self) -> int:
        """Number of compilations at a time."""
        return self.pool.at_once(_COMPILE)

    def pieces(self, cases: Sequence[BenchmarkCase]) -> list[tuple[int, BenchmarkCase]]:
        """The cases, those that are a large part of all work in pieces; each with the index of its case."""
        most = self._most_in_a_piece(cases)
        return [(index, piece) for index, case in enumerate(cases) for piece in divided(case, most)]

    def compile(self, pieces: Sequence[BenchmarkCase], directory: Path) -> Iterator[CompiledPiece]:
        """Compile several pieces at a time; if that ends the process, or takes too long, each of them apart."""
        apart: list[list[int]] = []
        for numbers, result in self._batches_compiled(pieces, self._batches(pieces), directory):
            if result.status is JobStatus.OK:
                for number, compiled in zip(numbers, result.value, strict=True):
                    yield number, compiled, result
            elif len(numbers) > 1:
                apart += [[number] for number in numbers]
            else:
                yield numbers[0], None, result
        for (number,), result in self._batches_compiled(pieces, apart, directory):
            yield number, result.value[0] if result.status is JobStatus.OK else None, result

    def _batches_compiled(
        self, pieces: Sequence[BenchmarkCase], batches: Sequence[list[int]], directory: Path
    ) -> Iterator[tuple[list[int], JobResult]]:
        deadline = self.deadline
        if deadline is not None:
            # Leave time to measure what is compiled.
            deadline -= _MEASURING_SECONDS * len(pieces)
        cases = [[pieces[number] for number in numbers] for numbers in batches]
        if len(batches) > 1 and self._probe_path is None:
            # Whoever measures waits for it, and it takes little in a module with others, which a GPU's driver would
            # compile with it in each process. That it fails ``probe`` tells.
            if self.target.is_cpu and not self._parts_probe:
                cases[0].append(PROBE)
            else:
                cases.append([PROBE])
        jobs = [(str(index), self._compiling(case, directory)) for index, case in enumerate(cases)]
        for result in self.pool.map_unordered(_COMPILE, jobs, self.timeout, deadline=deadline):
            numbers = next(iter(batches[int(result.job_id) :]), [])
            if result.status is JobStatus.OK:
                for probed in result.value[len(numbers) :]:
                    (self._probe_path,) = probed.modules.values() or (None,)
                result = replace(result, value=result.value[: len(numbers)])
            if numbers:
                yield numbers, result

    def part_probe(self) -> None:
        """Compile the probe anew, by itself: code that cannot be loaded takes all of its module with it."""
        self._probe_path, self._parts_probe = None, True

    def _batches(self, pieces: Sequence[BenchmarkCase]) -> list[list[int]]:
        """Indices of the pieces that are compiled at a time. A GPU's driver compiles all of a module that is loaded,
        and a module that another machine measures should arrive early, so that those are compiled one by one."""
        if not self.target.is_cpu or self.pool.measures_elsewhere:
            return [[index] for index in range(len(pieces))]
        variants = sum(len(piece.variants) for piece in pieces)
        return batched(pieces, batch_count(variants, self.at_once))

    def _most_in_a_piece(self, cases: Sequence[BenchmarkCase]) -> int:
        """Number of variants that one process compiles at once, so that no process has much left when others end."""
        variants = sum(len(case.variants) for case in cases)
        return max(_LEAST_IN_A_PIECE, -(-variants // (_PIECES * self.at_once)))

    def probe(self, directory: Path) -> Path:
        """The compiled probe.

        Raises:
            CompileError: if it does not compile, so no variant will.
            DisturbedError: if the worker was disturbed.
        """
        if self._probe_path is None or not self._probe_path.exists():
            (result,) = self.pool.map_unordered(_COMPILE, [(PROBE.key, self._probing(directory))], self.timeout)
            if result.status.is_transient:
                raise result.error(f"compiling for {self.target}")
            failed = CompiledCase({}, {PROBE.key: result.message})
            compiled = result.value[0] if result.status is JobStatus.OK else failed
            if not compiled.modules:
                reason = "; ".join(compiled.failures.values())
                raise CompileError(f"IREE cannot compile for {self.target}: {reason}")
            (self._probe_path,) = compiled.modules.values()
        return self._probe_path

    def _probing(self, directory: Path) -> dict[str, object]:
        return self._compiling([PROBE], directory)

    def _compiling(self, cases: Sequence[BenchmarkCase], directory: Path) -> dict[str, object]:
        return {"cases": cases, "target": self.target, "directory": directory}


def batch_count(variants: int, at_once: int) -> int:
    """How many compilations a round of some variants becomes, of which ``at_once`` run side by side.

    One more than a multiple of these would be compiled while all other processes wait.
    """
    least = -(-variants // _MOST_IN_A_BATCH)
    most = min(variants // _LEAST_IN_A_BATCH, max(at_once, min(_BATCHES * at_once, variants // _LEAST_IN_A_SECOND)))
    if max(least, most) <= at_once:
        return max(least, most, 1)
    return max(-(-least // at_once), most // at_once) * at_once
