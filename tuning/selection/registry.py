"""The solvers by name. Every file of this folder that has a ``select`` must be listed here."""

from __future__ import annotations

from sartor.tuning.selection import auto
from sartor.tuning.selection.elimination import dprs
from sartor.tuning.selection.heuristics import greedy, pbqp, qlearning
from sartor.tuning.selection.problem.selection import Selector
from sartor.tuning.selection.programming import ilp

SELECTORS: dict[str, Selector] = {
    auto.NAME: auto.select,
    dprs.NAME: dprs.select,
    greedy.NAME: greedy.select,
    ilp.NAME: ilp.select,
    pbqp.NAME: pbqp.select,
    qlearning.NAME: qlearning.select,
}
