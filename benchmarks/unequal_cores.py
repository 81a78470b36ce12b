"""How workgroups are shared by unequal cores, by simulation: ``python -m benchmarks.unequal_cores``.

Each row is a way to partition a layer, each column a CPU; numbers are the layer's time relative to that of cores which
all end together, without a cost for taking workgroups. Prints the table of docs/records/tuning.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from sartor.tuning.search.workgroups import equal, given_to_cores, proportional, shrinking, taken_in_turn

CPUS: Mapping[str, tuple[float, ...]] = {
    "8 equal": (1.0,) * 8,
    "4 + 4, 2 to 1": (2.0,) * 4 + (1.0,) * 4,
    "4 + 4, 3 to 1": (3.0,) * 4 + (1.0,) * 4,
    "4 + 4, 3 to 1, a big one at half": (1.5,) + (3.0,) * 3 + (1.0,) * 4,
    "2 + 6, 4 to 1": (4.0,) * 2 + (1.0,) * 6,
}
"""Speeds of the cores of simulated CPUs."""

CLAIMS = (0.0, 1e-7)
"""Seconds to take a workgroup."""

SECONDS = (1e-5, 1e-4, 1e-3)
"""Times of the layers on a core of speed 1."""

Partition = Callable[[Sequence[float], Sequence[float], float], float]
"""The time of a layer by the speeds of the cores, the speeds that were expected, and the time to take a workgroup."""

PARTITIONS: Mapping[str, Partition] = {
    "one core, the fastest": lambda speeds, _, claim: taken_in_turn(equal(1), [max(speeds)], claim),
    "the fastest cores only, equal shares": lambda speeds, _, claim: _on_fastest(speeds, claim),
    "a share for each core, equal": lambda speeds, _, claim: given_to_cores(equal(len(speeds)), speeds, claim),
    "a share for each core, by the expected speed": lambda speeds, expected, claim: given_to_cores(
        proportional(expected), speeds, claim
    ),
    "in turn, 2 equal for each core": lambda speeds, _, claim: taken_in_turn(equal(2 * len(speeds)), speeds, claim),
    "in turn, 7 equal for each core": lambda speeds, _, claim: taken_in_turn(equal(7 * len(speeds)), speeds, claim),
    "in turn, 2 shrinking for each core": lambda speeds, _, claim: taken_in_turn(
        shrinking(2 * len(speeds)), speeds, claim
    ),
    "in turn, 7 shrinking for each core": lambda speeds, _, claim: taken_in_turn(
        shrinking(7 * len(speeds)), speeds, claim
    ),
}
"""Ways to partition a layer."""

EXPECTED: Mapping[str, str] = {"4 + 4, 3 to 1, a big one at half": "4 + 4, 3 to 1"}
"""CPUs whose cores are expected to be those of another."""


def relative(partition: str, cpu: str, claim: float = 0.0) -> float:
    """The time of a layer relative to the least possible one; ``claim`` is relative to the layer's time on speed 1."""
    speeds = CPUS[cpu]
    return PARTITIONS[partition](speeds, CPUS[EXPECTED.get(cpu, cpu)], claim) * sum(speeds)


def _on_fastest(speeds: Sequence[float], claim: float) -> float:
    """Equal shares on the cores of the greatest speed."""
    fastest = [speed for speed in speeds if speed == max(speeds)]
    return given_to_cores(equal(len(fastest)), fastest, claim)


def table() -> str:
    """All partitions on all CPUs, then on one of them for layers of several lengths, as Markdown."""
    long = [[name, *(f"{relative(name, cpu):.2f}" for cpu in CPUS)] for name in PARTITIONS]
    cpu, claim = "4 + 4, 3 to 1", CLAIMS[-1]
    short = [[name, *(f"{relative(name, cpu, claim / second):.2f}" for second in SECONDS)] for name in PARTITIONS]
    lengths = [f"{cpu}, {second * 1e6:g} µs" for second in SECONDS]
    return _markdown(["partition", *CPUS], long) + "\n\n" + _markdown(["partition", *lengths], short)


def _markdown(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


if __name__ == "__main__":
    print(table())
