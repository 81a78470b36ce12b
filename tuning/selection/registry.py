"""The solvers by name; every file of this folder with a ``select`` is listed here."""

from __future__ import annotations

from sartor.tuning.selection import auto, dprs, exhaustive, greedy, ilp, pbqp, qlearning, random_search
from sartor.tuning.selection.selection import Selector

SELECTORS: dict[str, Selector] = {
    auto.NAME: auto.select,
    dprs.NAME: dprs.select,
    exhaustive.NAME: exhaustive.select,
    greedy.NAME: greedy.select,
    ilp.NAME: ilp.select,
    pbqp.NAME: pbqp.select,
    qlearning.NAME: qlearning.select,
    random_search.NAME: random_search.select,
}
