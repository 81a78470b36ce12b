"""Assigns the parts of a first inference to big and little cores, as Algorithm 1 of NNV12 (section 3.3) does.

The big cores execute all layers, together and in order. To prepare a layer is to read its weights and to transform
them; a little core does that alone, or the big ones before they execute anything. ``assign`` is the algorithm for given
kernels. ``simulate`` says when everything is done, also where other programs take a part of a core: a core that has
nothing to do, or waits, then takes over ("steals") the next preparation of the core that is furthest behind.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

BIG = 0
"""The number of the big cores together; little ones follow."""


@dataclass(frozen=True)
class Stages:
    """Seconds of the stages of a layer.

    Attributes:
        on_little: preparing it on a little core.
        on_big: preparing it on the big cores.
        executing: executing it on the big cores.
    """

    on_little: float
    on_big: float
    executing: float

    def preparing(self, core: int) -> float:
        """Preparing it on a core."""
        return self.on_big if core == BIG else self.on_little


@dataclass(frozen=True)
class Step:
    """What a core does without interruption: prepares a layer, or executes it."""

    core: int
    layer: int
    executes: bool
    begin: float
    end: float


@dataclass(frozen=True)
class Timeline:
    """The steps of a first inference in the order in which they begin, and the number of those that were taken over."""

    steps: tuple[Step, ...]
    steals: int = 0

    @property
    def seconds(self) -> float:
        """When the last layer is done."""
        return max((step.end for step in self.steps), default=0.0)


Queues = tuple[tuple[int, ...], ...]
"""The layers that each core prepares, in order; those of the big cores first."""


def least_seconds(layers: Sequence[Stages]) -> float:
    """No schedule is shorter: what is executed is executed in order, and each layer is prepared before."""
    left, least = 0.0, 0.0
    for layer in reversed(layers):
        left += layer.executing
        least = max(least, min(layer.on_little, layer.on_big) + left)
    return least


def assign(layers: Sequence[Stages], little: int, tolerance: float = 0.0) -> Queues:
    """Divide the preparations among the cores (Algorithm 1, lines 3 to 20).

    The big cores prepare the first layer. They prepare more, from the beginning on, as long as the slowest little core
    would take longer than they; the others are dealt out to the little cores in turn, and balanced by moves from the
    slowest to the fastest.

    Args:
        layers: in the order of execution.
        little: number of little cores.
        tolerance: seconds of imbalance that are no reason for a move.
    """
    numbers = range(len(layers))
    if little == 0:
        return (tuple(numbers),)
    own = [*numbers[:1]]
    while True:
        queues = _balanced(layers, numbers[len(own) :], little, tolerance)
        slowest = max(_seconds(layers, queue) for queue in queues)
        big = sum(layers[each].on_big for each in own) + sum(layer.executing for layer in layers)
        following = len(own)
        if slowest <= big + tolerance or following == len(layers):
            break
        moved = layers[following]
        if moved.on_big + moved.on_little >= slowest - big:
            break
        own.append(following)
    return (tuple(own), *(tuple(queue) for queue in queues))


def _balanced(layers: Sequence[Stages], numbers: Sequence[int], little: int, tolerance: float) -> list[list[int]]:
    """Lines 12 to 20: the layers by little core, each in the order of execution."""
    queues = [list(numbers[core::little]) for core in range(little)]
    for _ in range(len(numbers) * little):
        slow, fast = (choose(queues, key=lambda queue: _seconds(layers, queue)) for choose in (max, min))
        excess = _seconds(layers, slow) - _seconds(layers, fast)
        fitting = [each for each in slow if 0 < layers[each].on_little < excess / 2]
        if excess <= tolerance or not fitting:
            break
        moved = max(fitting, key=lambda each: layers[each].on_little)
        slow.remove(moved)
        fast.append(moved)
    return [sorted(queue) for queue in queues]


def _seconds(layers: Sequence[Stages], queue: Sequence[int]) -> float:
    return sum(layers[each].on_little for each in queue)


def simulate(
    layers: Sequence[Stages], queues: Queues, slowed: Sequence[float] = (), *, steals: bool = True
) -> Timeline:
    """Run a schedule.

    Args:
        layers: in the order of execution.
        queues: who prepares what, as ``assign`` gives it.
        slowed: by which factor each core is slower than it was when it was measured; those left out are not.
        steals: whether a core that has nothing to do takes over what others have not begun.
    """
    return _Simulation(layers, queues, slowed, steals=steals).run()


@dataclass
class _Simulation:
    layers: Sequence[Stages]
    queues: Queues
    slowed: Sequence[float]
    steals: bool
    steps: list[Step] = field(default_factory=list)
    stolen: int = 0

    def __post_init__(self) -> None:
        self._waiting = [list(queue) for queue in self.queues]
        self._free = [0.0] * len(self.queues)
        self._prepared: dict[int, float] = {}
        self._executed = 0

    def run(self) -> Timeline:
        """Let cores that are free take what they do next, until all layers are executed."""
        now, cores = 0.0, range(len(self._free))
        while self._executed < len(self.layers):
            if any(self._takes(core, now) for core in cores if self._free[core] <= now):
                continue
            later = [time for time in (*self._free, *self._prepared.values()) if time > now]
            if not later:
                raise ValueError("no core prepares some layer")
            now = min(later)
        return Timeline(tuple(sorted(self.steps, key=lambda step: (step.begin, step.core))), self.stolen)

    def _takes(self, core: int, now: float) -> bool:
        """Begin what a core does next; False if there is nothing."""
        if self._waiting[core]:
            return self._prepare(core, self._waiting[core].pop(0), now)
        if core == BIG and self._prepared.get(self._executed, math.inf) <= now:
            return self._add(core, self._executed, now, executes=True)
        if not self.steals:
            return False
        busiest = max(range(len(self._waiting)), key=lambda index: self._left(index, now))
        if not self._waiting[busiest]:
            return False
        layer = self._waiting[busiest][0]
        ends = now + self.layers[layer].preparing(core) * self._factor(core)
        if ends >= max(self._free[busiest], now) + self.layers[layer].preparing(busiest) * self._factor(busiest):
            return False
        self.stolen += 1
        return self._prepare(core, self._waiting[busiest].pop(0), now)

    def _left(self, core: int, now: float) -> float:
        """Seconds until a core has prepared what waits for it."""
        waiting = sum(self.layers[each].preparing(core) for each in self._waiting[core])
        return max(self._free[core] - now, 0.0) + waiting * self._factor(core) if waiting else 0.0

    def _prepare(self, core: int, layer: int, now: float) -> bool:
        self._add(core, layer, now, executes=False)
        self._prepared[layer] = self._free[core]
        return True

    def _add(self, core: int, layer: int, now: float, *, executes: bool) -> bool:
        stages = self.layers[layer]
        taken = (stages.executing if executes else stages.preparing(core)) * self._factor(core)
        self._free[core] = now + taken
        self._executed += executes
        self.steps.append(Step(core, layer, executes, now, now + taken))
        return True

    def _factor(self, core: int) -> float:
        return self.slowed[core] if core < len(self.slowed) else 1.0
