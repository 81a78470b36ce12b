"""Times of a network's pieces from times of its beginnings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from sartor.codegen.ir.layer import TensorType
from sartor.runtime.dispatch_statistics import Dispatch
from sartor.tuning.records.measurement import typical_time


@dataclass(frozen=True)
class PrefixEntry:
    """An exported beginning of a network.

    Attributes:
        name: of the function.
        symbol: of the piece that it ends with.
        length: number of pieces.
        results: types in memory of what it gives.
    """

    name: str
    symbol: str
    length: int
    results: tuple[TensorType, ...] = ()


def piece_times(
    entries: Sequence[PrefixEntry], samples: Sequence[Sequence[float]], overhead: float
) -> tuple[Dispatch, ...]:
    """Times of pieces, from those of beginnings; a piece that is timed at several places has them as calls.

    A longer beginning takes no less time, so times are made to grow, by the least change (pool adjacent violators:
    Barlow and others, 1972). A difference that is smaller than the spread of both times tells nothing and is left out.

    Args:
        entries: the shortest first.
        samples: seconds of each.
        overhead: seconds of a call without pieces.
    """
    taken = [typical_time(sample) for sample in samples]
    spreads = [median(sample) - time for sample, time in zip(samples, taken, strict=True)]
    ends = [overhead, *growing(taken)]
    seconds_of_pieces: dict[str, list[float]] = {}
    for place, entry in enumerate(entries):
        before = entries[place - 1].length if place else 0
        took, spread = ends[place + 1] - ends[place], max(spreads[max(place - 1, 0)], spreads[place])
        if entry.length == before + 1 and took > spread:
            seconds_of_pieces.setdefault(entry.symbol, []).append(took)
    return tuple(Dispatch(symbol, len(seconds), sum(seconds)) for symbol, seconds in seconds_of_pieces.items())


def growing(values: Sequence[float]) -> list[float]:
    """The nearest sequence, by least squares, that does not decrease."""
    pools: list[tuple[float, int]] = []
    for value in values:
        mean, count = value, 1
        while pools and pools[-1][0] > mean:
            other, others = pools.pop()
            mean, count = (mean * count + other * others) / (count + others), count + others
        pools.append((mean, count))
    return [mean for mean, count in pools for _ in range(count)]
