"""The cases that a batch measures: which are asked for, and which are answered."""

from __future__ import annotations

from collections.abc import Mapping

from sartor.tuning.measuring.benchmark_case import BenchmarkCase
from sartor.tuning.workers.pool import Batch, JobResult


class AskedCases:
    """Cases in the order in which they were asked for.

    Args:
        batch: measures them.
    """

    def __init__(self, batch: Batch) -> None:
        self._batch = batch
        self.cases: list[BenchmarkCase] = []
        self.disputed: list[BenchmarkCase] = []
        self.done = 0

    def __contains__(self, case: BenchmarkCase) -> bool:
        return any(case_of_all is case for case_of_all in self.cases)

    @property
    def count(self) -> int:
        """Number of cases."""
        return len(self.cases)

    @property
    def lacks_results(self) -> bool:
        """Whether some have no result, as the deadline passed."""
        return self.done < self.count

    def add(self, case: BenchmarkCase, arguments: Mapping[str, object]) -> None:
        """Have a case measured; its time grows with its variants."""
        self._batch.add(str(self.count), arguments, weight=float(len(case.variants)))
        self.cases.append(case)

    def answered(self, result: JobResult) -> BenchmarkCase:
        """The case of a result."""
        self.done += 1
        return self.cases[int(result.job_id)]
