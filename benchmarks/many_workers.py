"""How tuning scales with the number of machines, by simulation: ``python -m benchmarks.many_workers``.

Events are simulated, decisions are not: the program's own dispatcher places the jobs. Compilers take cases in the order
of a queue; a compiled case goes to a machine that measures. Every job and result takes the owner of the database some
time, one after the other. The search has rounds, each begins when the last is over. Prints the tables of
docs/records/tuning-on-other-machines.md.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from sartor.tuning.cluster.dispatcher import Attempt, Dispatcher, Job

OWNER_SECONDS = 5e-3
"""What the owner of the database takes for a job and for its result: packing, sending, storing (assumed)."""

COMPILE_SECONDS = 0.4
MEASURE_SECONDS = 0.15
"""For one variant (docs/records/tuning.md: 0.3 to 1 s to compile, a tenth or more of it to measure)."""


@dataclass(frozen=True)
class Network:
    """Cases of a network by round: the number of variants of each."""

    name: str
    rounds: tuple[tuple[int, ...], ...]

    @property
    def variants(self) -> int:
        """Variants in all rounds."""
        return sum(map(sum, self.rounds))

    @property
    def alone(self) -> float:
        """Seconds of one compiler and one machine, compiling first."""
        return self.variants * (COMPILE_SECONDS + MEASURE_SECONDS)


@dataclass(frozen=True)
class Farm:
    """Machines: how many, how many compilations each does at a time, and what goes wrong.

    Attributes:
        machines: those that measure and compile.
        compilers: on each of them.
        straggling: share of measurements that take ten times as long.
        mean_life: seconds after which a machine is lost, on the average; it is back after 30 s. 0 for never.
        duplicates: whether stragglers are placed a second time.
    """

    machines: int
    compilers: int = 4
    straggling: float = 0.0
    mean_life: float = 0.0
    duplicates: bool = True


@dataclass
class _Simulation:
    farm: Farm
    random: random.Random
    now: float = 0.0
    owner: float = 0.0
    lost: int = 0
    twice: int = 0
    _events: list[tuple[float, int, Callable[[], None]]] = field(default_factory=list)
    _numbers: itertools.count[int] = field(default_factory=itertools.count)
    _there: dict[str, str] = field(default_factory=dict)

    def run(self, rounds: Sequence[Sequence[int]]) -> float:
        """Seconds of all rounds."""
        self._there = {f"m{number}": f"m{number}" for number in range(self.farm.machines)}
        for machine in list(self._there):
            self._live(machine)
        for cases in rounds:
            self._round(cases)
        return self.now

    def _at(self, moment: float, do: Callable[[], None]) -> None:
        heapq.heappush(self._events, (moment, next(self._numbers), do))

    def _by_owner(self, do: Callable[[], None]) -> None:
        """Do something when the owner has time."""
        self.owner = max(self.owner, self.now) + OWNER_SECONDS
        self._at(self.owner, do)

    def _live(self, machine: str) -> None:
        if self.farm.mean_life:
            self._at(self.now + self.random.expovariate(1 / self.farm.mean_life), lambda: self._die(machine))

    def _die(self, machine: str) -> None:
        self._there.pop(machine, None)
        self._at(self.now + 30.0, lambda: self._come(machine))

    def _come(self, machine: str) -> None:
        self._there[machine] = machine
        self._live(machine)

    def _round(self, cases: Sequence[int]) -> None:
        measuring = Dispatcher() if self.farm.duplicates else Dispatcher(straggling=float("inf"))
        waiting = sorted(((count, f"case {index}") for index, count in enumerate(cases)), reverse=True)
        left = {name for _, name in waiting}
        free = [self.farm.machines * self.farm.compilers]

        def compile_more() -> None:
            while waiting and free[0]:
                count, name = waiting.pop(0)
                free[0] -= 1
                self._at(self.now + count * COMPILE_SECONDS, lambda count=count, name=name: compiled(count, name))  # type: ignore[misc]

        def compiled(count: int, name: str) -> None:
            free[0] += 1
            self._by_owner(lambda: measuring.add(Job(name, float(count))))

        def ended(attempt: Attempt) -> None:
            if measuring.is_running(attempt) and measuring.ended(attempt, self.now):
                self._by_owner(lambda: left.discard(attempt.job.name))

        while left:
            compile_more()
            for gone in measuring.lost_with(self._there):
                self.lost += 1
                measuring.lost(gone)
            for attempt in measuring.place(self._there, self.now):
                self.twice += any(each.number < attempt.number for each in measuring.attempts_at(attempt.job.name))
                slow = 10.0 if self.random.random() < self.farm.straggling else 1.0
                seconds = attempt.job.weight * MEASURE_SECONDS * slow * self.random.uniform(0.8, 1.2) + OWNER_SECONDS
                self._at(self.now + seconds, lambda attempt=attempt: ended(attempt))  # type: ignore[misc]
            # Without an event, time goes on such that stragglers are seen.
            moment, _, do = heapq.heappop(self._events) if self._events else (self.now + 0.5, 0, lambda: None)
            if moment > self.now + 0.5:
                self._at(moment, do)
                moment, do = self.now + 0.5, lambda: None
            self.now = moment
            do()


@dataclass(frozen=True)
class Simulated:
    """Seconds of a tune, measurements that were lost, and those that were made twice."""

    seconds: float
    lost: int
    twice: int


def simulate(network: Network, farm: Farm, seed: int = 0) -> Simulated:
    """Tune a network on a farm."""
    simulation = _Simulation(farm, random.Random(seed))
    seconds = simulation.run(network.rounds)
    return Simulated(seconds, simulation.lost, simulation.twice)


def network(name: str, tasks: int, variants: int) -> Network:
    """A network with so many tasks, whose search measures so many variants: two thirds in the first round, the rest in
    two more, beside candidate 0 and the best so far."""
    drawn = random.Random(name)
    share = variants / tasks

    def counts(part: float, least: int) -> tuple[int, ...]:
        return tuple(max(least, round(share * part * drawn.uniform(0.5, 1.5))) for _ in range(tasks))

    return Network(name, (counts(0.67, 2), counts(0.22, 3)[: tasks // 2], counts(0.11, 3)[: tasks // 3]))


NETWORKS: Mapping[str, Network] = {
    "ResNet-18": network("ResNet-18", 11, 98),
    "ResNet-50": network("ResNet-50", 24, 163),
    "a hundred layers": network("a hundred layers", 100, 1200),
}
"""Networks by the numbers of docs/records/tuning.md, and a large one that is assumed."""

COUNTS = (1, 2, 4, 10, 30, 100)


def main() -> None:
    """Print the tables."""
    print("| machines | " + " | ".join(NETWORKS) + " |")
    print("| --- |" + " --- |" * len(NETWORKS))
    for count in COUNTS:
        found = [simulate(each, Farm(count)).seconds for each in NETWORKS.values()]
        cells = [
            f"{seconds:.0f} s, {simulate(each, Farm(1)).seconds / seconds:.1f}x"
            for each, seconds in zip(NETWORKS.values(), found, strict=True)
        ]
        print(f"| {count} | {' | '.join(cells)} |")
    print("\n| 100 machines, a hundred layers | seconds | lost | made twice |\n| --- | --- | --- | --- |")
    large = NETWORKS["a hundred layers"]
    for name, farm in {
        "nothing goes wrong": Farm(100),
        "a fiftieth of measurements takes ten times as long": Farm(100, straggling=0.02),
        "the same, never made twice": Farm(100, straggling=0.02, duplicates=False),
        "each machine is lost after 20 s on the average": Farm(100, mean_life=20.0),
    }.items():
        done = simulate(large, farm)
        print(f"| {name} | {done.seconds:.0f} | {done.lost} | {done.twice} |")


if __name__ == "__main__":
    main()
