"""What a refinement has found, while it goes on and at its end."""

from __future__ import annotations

from dataclasses import dataclass, field

from sartor.planning.recipe import Recipe
from sartor.profiling.profiler import Profiled
from sartor.tuning.cost_tables.in_network import InNetworkTimes, corrected
from sartor.tuning.cost_tables.tables import Tables
from sartor.tuning.records.plan import Plan
from sartor.tuning.selection.problem.limits import Limits


@dataclass(frozen=True)
class Refined:
    """The result of a refinement.

    Attributes:
        recipe: the recipe to build.
        profiled: its run.
        plan: its plan with all measured times.
        tables: costs measured alone.
        found: times measured in the network, fitted to its time.
        tried: all recipes that were run.
    """

    recipe: Recipe
    profiled: Profiled
    plan: Plan
    tables: Tables
    found: InNetworkTimes
    tried: tuple[Recipe, ...]

    @property
    def placed(self) -> Tables:
        """The tables corrected by times in the network."""
        return corrected(self.tables, self.found)


@dataclass(frozen=True)
class Refinement:
    """The state of a refinement.

    Attributes:
        tried: all recipes, those of the last round included.
        latest: recipes selected last; the next round uses the run of the first of them that ran.
        tables: costs measured alone.
        limits: under which plans are selected.
        found: times measured in networks, fitted to the times of these.
        seen: the same as they were measured.
        profiled: the best of the tried recipes; None while limits are being tightened.
        keeps_limits: whether the limits are final.
        is_settled: whether times in the network select no new plan.
    """

    tried: tuple[Recipe, ...]
    latest: tuple[Recipe, ...]
    tables: Tables
    limits: Limits
    found: InNetworkTimes = field(default_factory=InNetworkTimes)
    seen: InNetworkTimes = field(default_factory=InNetworkTimes)
    profiled: Profiled | None = None
    keeps_limits: bool = False
    is_settled: bool = False
