"""The solvers by name; every file of this folder with a ``select`` is listed here."""

from __future__ import annotations

from sartor.tuning.selection import dprs, exhaustive, greedy
from sartor.tuning.selection.selection import Selector

SELECTORS: dict[str, Selector] = {
    dprs.NAME: dprs.select,
    exhaustive.NAME: exhaustive.select,
    greedy.NAME: greedy.select,
}
