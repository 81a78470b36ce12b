"""Machines of one kind against each other: by candidate 0, which all of them have measured for some tasks.

Equal machines differ by some percent, in clock rates, cooling and memory. Within a task that does not matter, as times
count relative to candidate 0's in the same run. Between tasks that different machines measured it does: times of each
machine are divided by how much slower it is than the reference, the machine that measured first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median

MOST_UNLIKE = 1.5
"""Machines whose times differ by more than this are no machines of one kind, whatever they report."""


@dataclass
class Likeness:
    """Seconds of candidate 0 by machine and task.

    Attributes:
        reference: the machine that others are compared with; None until there is one.
    """

    reference: str | None = None
    _seconds: dict[str, dict[str, float]] = field(default_factory=dict)
    _assumed: set[str] = field(default_factory=set)
    _twins: dict[str, str] = field(default_factory=dict)

    def assume(self, machine: str) -> None:
        """Take a machine for as fast as the reference, as none of what both did has a time."""
        self._assumed.add(machine)

    def join(self, machine: str, other: str) -> None:
        """Take two for one machine: what is known of ``other`` holds for ``machine``."""
        self._twins[machine] = other

    def is_joined(self, machine: str) -> bool:
        """Whether it was taken for another."""
        return machine in self._twins

    def put(self, machine: str, task: str, seconds: float) -> None:
        """Note the time of candidate 0 of a task on a machine."""
        self._seconds.setdefault(machine, {})[task] = seconds

    def has_measured(self, machine: str | None) -> bool:
        """Whether anything is known of a machine."""
        return machine in self._seconds

    def ratios(self, machine: str) -> Mapping[str, float]:
        """By task how much slower a machine is than the reference, for tasks that both have measured."""
        machine = self._twins.get(machine, machine)
        own, base = self._seconds.get(machine, {}), self._seconds.get(self.reference or "", {})
        return {task: seconds / base[task] for task, seconds in own.items() if task in base}

    def slowness(self, machine: str) -> float | None:
        """How much slower a machine is than the reference: the median of its ratios; None if not known yet."""
        machine = self._twins.get(machine, machine)
        if machine == self.reference:
            return 1.0
        ratios = self.ratios(machine)
        if ratios:
            return median(ratios.values())
        return 1.0 if machine in self._assumed else None

    def is_unlike(self, machine: str) -> bool:
        """Whether a machine is plainly not of the reference's kind: another speed, or other ratios between tasks."""
        slowness = self.slowness(machine)
        if slowness is None:
            return False
        factors = [slowness, *(ratio / slowness for ratio in self.ratios(machine).values())]
        return any(not 1 / MOST_UNLIKE <= factor <= MOST_UNLIKE for factor in factors)
