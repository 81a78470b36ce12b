"""By how much the times in corrected tables may be wrong.

Plans whose predicted times differ by less than that may each be the fastest. Three things are known of it: by how much
the samples of a measurement vary, by how much the ratio of a layer's time in the network to its time alone varies from
layer to layer, and by how much a network's time differs from the sum of its layers' times there.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import quantiles

from sartor.tuning.cost_tables.in_network import LEAST_RATIO, MOST_RATIO, InNetworkTimes
from sartor.tuning.cost_tables.tables import Tables
from sartor.tuning.records.measurement import Measurement, typical_time

Piece = tuple[str, str]
"""Task key and descriptor of a variant, or ``CONVERSION`` and the symbol of a conversion."""

CONVERSION = "conversion"


@dataclass(frozen=True)
class TableErrors:
    """Standard deviations of the relative errors of times in corrected tables.

    Attributes:
        alone: times measured alone.
        timed: variants and conversions that were timed in a network.
        network: of what was timed there.
        other: of anything else, which is scaled, without the error of its measurement.
    """

    alone: Tables
    timed: frozenset[Piece]
    network: float
    other: float

    @staticmethod
    def of(alone: Tables, network_times: InNetworkTimes, ratio: float) -> TableErrors:
        """The errors of tables that are corrected by times in networks.

        Args:
            alone: times measured alone.
            found: times in networks.
            ratio: of a network's time to the sum of its layers' times there.
        """
        network = abs(math.log(ratio))
        timed = frozenset([*network_times.layers, *((CONVERSION, kind.symbol) for kind in network_times.adapts)])
        return TableErrors(alone, timed, network, math.hypot(network, _spread(alone, network_times)))

    @property
    def of_a_swap(self) -> float:
        """The error of replacing a variant that was timed by another that was not, relative to their time."""
        return math.hypot(self.network, self.other)

    def of_difference(self, plan: Mapping[Piece, float], other: Mapping[Piece, float]) -> float:
        """Standard deviation, in seconds, of the difference of the times of two plans, given as seconds of each piece.

        What both do alike has the same error in both.
        """
        seconds = {piece: plan.get(piece, 0.0) - other.get(piece, 0.0) for piece in {*plan, *other}}
        return math.hypot(*(taken * self._relative(piece) for piece, taken in seconds.items()))

    def _relative(self, piece: Piece) -> float:
        if piece in self.timed:
            return self.network
        task, descriptor = piece
        measurement = self.alone.measured.get(task, {}).get(descriptor)
        return math.hypot(self.other, 0.0 if measurement is None else sampling_error(measurement))


def sampling_error(measurement: Measurement) -> float:
    """Relative standard error of a measured time, from the quartiles of its samples; 0 if there is only one."""
    samples = measurement.samples
    if len(samples) < 2:
        return 0.0
    lower, _, upper = quantiles(samples, n=4, method="inclusive")
    # The quartiles of a normal distribution are 1.35 standard deviations apart, and the error of its lower quartile is
    # 1.36 standard deviations by the root of the number of samples.
    return (upper - lower) / math.sqrt(len(samples)) / typical_time(samples)


def _spread(alone: Tables, network_times: InNetworkTimes) -> float:
    """Standard deviation of the logarithms of the ratios of times in the network to times alone, weighted by time."""
    pairs = [(alone.seconds(*piece), taken) for piece, taken in network_times.layers.items()]
    ratios = [(_clipped(taken / own), taken) for own, taken in pairs if own]
    total = math.fsum(weight for _, weight in ratios)
    if not total:
        return 0.0
    mean = math.fsum(math.log(ratio) * weight for ratio, weight in ratios) / total
    return math.sqrt(math.fsum((math.log(ratio) - mean) ** 2 * weight for ratio, weight in ratios) / total)


def _clipped(ratio: float) -> float:
    return min(max(ratio, LEAST_RATIO), MOST_RATIO)
