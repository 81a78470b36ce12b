"""The only module that uses HiGHS (Huangfu and Hall, "Parallelizing the dual revised simplex method", 2018; highs.dev).

It runs on one thread with a fixed seed, so the same program gives the same answer.
"""

from __future__ import annotations

import ctypes
import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import highspy
import numpy as np

from sartor.tuning.selection.problem.indexed import Floats
from sartor.tuning.selection.programming.formulation import Row

_OPTIONS: dict[str, bool | int | float | str] = {
    "output_flag": False,
    # Presolve of HiGHS 1.15.1 hangs on about one in 10,000 random programs of ten columns and ignores the time limit,
    # on other programs with its sparsifier off. It gains nothing here: with it, zoo networks and dense blocks take
    # 0.7 to 1.6 times as long.
    "presolve": "off",
    "threads": 1,
    "parallel": "off",
    "random_seed": 0,
    "mip_rel_gap": 0.0,
    "mip_abs_gap": 1e-6,
    "mip_feasibility_tolerance": 1e-8,
    "primal_feasibility_tolerance": 1e-8,
}
_LARGEST_COST = 1024.0
"""Objectives are scaled to about this, so that the solver's absolute tolerances are about 1e-10 of them."""
_INFEASIBLE = (highspy.HighsModelStatus.kInfeasible, highspy.HighsModelStatus.kUnboundedOrInfeasible)


@dataclass(frozen=True, eq=False)
class Answer:
    """The result of the solver.

    Attributes:
        values: the columns' values in the best solution, None if none was found.
        bound: lower bound of all solutions' objectives.
        final: whether the solver ended before the time limit: then the solution is optimal, or there is none.
    """

    values: Floats | None
    bound: float
    final: bool


class HighsSolver:
    """A program that is solved repeatedly, with changes of its objective and rows in between."""

    def __init__(self, binary: Sequence[bool], rows: Sequence[Row]) -> None:
        with _standard_output_dropped():
            self._highs = highspy.Highs()  # type: ignore[no-untyped-call]
        for name, value in _OPTIONS.items():
            self._highs.setOptionValue(name, value)
        self._columns = len(binary)
        self._rows = len(rows)
        self._highs.passModel(_model(binary, rows))

    def add_row(self, row: Row) -> int:
        """Add a constraint; returns the index by which it can be changed."""
        columns, factors = _split(row)
        self._highs.addRow(row.lower, row.upper, len(columns), columns, factors)
        self._rows += 1
        return self._rows - 1

    def bound_row(self, row: int, upper: float) -> None:
        """Set the upper bound of a row, and remove its lower bound."""
        self._highs.changeRowBounds(row, -math.inf, upper)

    def minimise(self, objective: Floats, seconds: float) -> Answer:
        """Minimise an objective within a time limit.

        Args:
            objective: coefficient of each column.
            seconds: time limit, infinite for none.
        """
        scale = power_of_two(objective, _LARGEST_COST)
        self._highs.changeColsCost(self._columns, np.arange(self._columns, dtype=np.int32), objective * scale)
        self._highs.setOptionValue("time_limit", self._highs.getRunTime() + max(seconds, 0.0))
        self._highs.run()
        status = self._highs.getModelStatus()
        if status in _INFEASIBLE:
            return Answer(None, math.inf, True)
        info = self._highs.getInfo()
        bound = info.mip_dual_bound / scale
        if info.primal_solution_status != highspy.SolutionStatus.kSolutionStatusFeasible:
            return Answer(None, bound, False)
        values = np.array(self._highs.getSolution().col_value)
        return Answer(values, bound, status == highspy.HighsModelStatus.kOptimal)


@contextmanager
def _standard_output_dropped() -> Iterator[None]:
    """Drop what native code writes to the standard output, which is for results: HiGHS 1.16 greets there.

    It does so when its first object is made, before any option can be set.
    """
    try:
        kept = os.dup(1)
    except OSError:
        # It is closed, so that nothing can be written there.
        yield
        return
    library = ctypes.CDLL(None)
    library.fflush(None)
    sink = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(sink, 1)
        yield
        library.fflush(None)
    finally:
        os.dup2(kept, 1)
        os.close(sink)
        os.close(kept)


def power_of_two(values: Floats, wanted: float) -> float:
    """The power of two that scales the largest magnitude of the values to about ``wanted``, without rounding."""
    largest = float(np.abs(values).max(initial=0.0))
    return 1.0 if largest == 0 else 2.0 ** round(math.log2(wanted / largest))


def _split(row: Row) -> tuple[np.ndarray[tuple[int], np.dtype[np.int32]], Floats]:
    columns = np.fromiter((column for column, _ in row.terms), np.int32, len(row.terms))
    return columns, np.fromiter((factor for _, factor in row.terms), np.float64, len(row.terms))


def _model(binary: Sequence[bool], rows: Sequence[Row]) -> highspy.HighsLp:
    model = highspy.HighsLp()
    model.num_col_, model.num_row_ = len(binary), len(rows)
    model.col_cost_ = np.zeros(len(binary))
    model.col_lower_ = np.zeros(len(binary))
    model.col_upper_ = np.where(binary, 1.0, np.inf)
    model.integrality_ = [
        highspy.HighsVarType.kInteger if is_whole else highspy.HighsVarType.kContinuous for is_whole in binary
    ]
    model.row_lower_ = np.array([row.lower for row in rows], np.float64)
    model.row_upper_ = np.array([row.upper for row in rows], np.float64)
    model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    model.a_matrix_.start_ = np.cumsum([0, *(len(row.terms) for row in rows)], dtype=np.int32)
    columns, factors = _split(Row([term for row in rows for term in row.terms], 0, 0))
    model.a_matrix_.index_, model.a_matrix_.value_ = columns, factors
    return model
