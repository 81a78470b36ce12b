"""Times of layers within a network, which differ from their times alone.

Alone a layer finds its activations in the nearest cache and its threads awake; in a network, the layer before has
written them, perhaps on another core. IREE's statistics of a run of the whole network say what each dispatch took
there, and each dispatch is named after its layer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import mean, median
from typing import TypeVar

import numpy as np

from sartor.codegen.ir.graph import LayerGraph
from sartor.codegen.ir.variants.descriptor import SHARES, Descriptor, device_in, without_parameters
from sartor.codegen.ir.variants.routine import Variant
from sartor.codegen.linking.adapts import AdaptKind
from sartor.codegen.linking.overwriting import plain_name
from sartor.runtime.dispatch_statistics import Dispatch
from sartor.tuning.cost_tables.tables import Tables
from sartor.tuning.measuring.benchmark_case import symbol_of
from sartor.tuning.records.measurement import NO_TIME, Measurement
from sartor.tuning.transfers.conversions import adapts_between, distinct_adapts

_Piece = TypeVar("_Piece")
# Shorter times are not scaled: the ratio of two times of a few microseconds is noise.
_SCALED_SECONDS = 1e-5
# Time of a piece without its own dispatch; no dispatch is that short.
UNKNOWN = 1e-9
LEAST_RATIO, MOST_RATIO = 0.5, 3.0


@dataclass(frozen=True)
class InNetworkTimes:
    """Seconds of each call within networks that were run.

    Attributes:
        layers: by task key and descriptor of the variant.
        adapts: by conversion.
    """

    layers: Mapping[tuple[str, str], float] = field(default_factory=dict)
    adapts: Mapping[AdaptKind, float] = field(default_factory=dict)

    def __or__(self, later: InNetworkTimes) -> InNetworkTimes:
        return InNetworkTimes({**self.layers, **later.layers}, {**self.adapts, **later.adapts})

    @staticmethod
    def mean(networks: Sequence[InNetworkTimes]) -> InNetworkTimes:
        """Mean times of each piece over the networks that contain it, which were timed in turn."""
        return InNetworkTimes(_means(times.layers for times in networks), _means(times.adapts for times in networks))


@dataclass(frozen=True)
class Symbols:
    """Symbols of the layers and conversions in a network of chosen variants.

    Attributes:
        layers: symbol to task key and descriptor.
        adapts: symbol to conversion.
    """

    layers: Mapping[str, tuple[str, str]]
    adapts: Mapping[str, AdaptKind]

    @staticmethod
    def of(graph: LayerGraph, variants: Mapping[str, Variant], device: str) -> Symbols:
        """The symbols of a network, by the variants of its layers."""
        layers: dict[str, tuple[str, str]] = {}
        for layer in graph.layers:
            variant = variants[layer.name]
            layers[symbol_of(layer.task.key, variant)] = layer.task.key, variant.descriptor
        kinds = distinct_adapts(kind for _, kind in adapts_between(graph, variants, device))
        return Symbols(layers, {kind.symbol: kind for kind in kinds})

    @property
    def names(self) -> tuple[str, ...]:
        """All symbols in a fixed order, in which their times are stored."""
        return tuple(sorted((*self.layers, *self.adapts)))

    def seconds(self, passes: Iterable[Iterable[Dispatch]]) -> tuple[float, ...]:
        """Seconds of one call of each symbol in the median of some passes, in the order of ``names``, or ``UNKNOWN``.

        IREE keeps one of several dispatches with the same code, so a piece may have none under its own name, and
        another more calls than it has.
        """
        totals = [call_seconds(one_pass) for one_pass in passes]
        return tuple(median(total.get(name, UNKNOWN) for total in totals) for name in self.names)

    def in_network(self, seconds: Sequence[float]) -> InNetworkTimes:
        """Times by layer and by conversion, from times in the order of ``names``; none if there are more or fewer."""
        if len(seconds) != len(self.names):
            return InNetworkTimes({}, {})
        times = {name: taken for name, taken in zip(self.names, seconds, strict=True) if taken != UNKNOWN}
        return InNetworkTimes(
            {what: times[symbol] for symbol, what in self.layers.items() if symbol in times},
            {kind: times[symbol] for symbol, kind in self.adapts.items() if symbol in times},
        )


def _means(times_of_networks: Iterable[Mapping[_Piece, float]]) -> dict[_Piece, float]:
    samples: defaultdict[_Piece, list[float]] = defaultdict(list)
    for times in times_of_networks:
        for piece, seconds in times.items():
            samples[piece].append(seconds)
    return {piece: mean(taken) for piece, taken in samples.items()}


def call_seconds(dispatches: Iterable[Dispatch]) -> dict[str, float]:
    """Seconds of one call of each piece, by symbol: the sum over its dispatches.

    A dispatch that writes over an activation counts among the calls of the one that does not.
    """
    taken: defaultdict[str, list[Dispatch]] = defaultdict(list)
    for dispatch in dispatches:
        taken[plain_name(dispatch.name)].append(dispatch)
    total: defaultdict[str, float] = defaultdict(float)
    for name, alike in taken.items():
        total[name.partition("_")[0]] += sum(piece_times.seconds for piece_times in alike) / sum(
            piece_times.calls for piece_times in alike
        )
    return dict(total)


def scaled(alone: float, chosen_alone: float, chosen_in_network: float) -> float:
    """Estimate a variant's time in the network, by another variant of the task that was timed there and alone."""
    if chosen_alone < _SCALED_SECONDS:
        return max(alone + chosen_in_network - chosen_alone, alone)
    return alone * min(max(chosen_in_network / chosen_alone, LEAST_RATIO), MOST_RATIO)


def corrected(tables: Tables, network_times: InNetworkTimes) -> Tables:
    """Tables with times in the network: measured there, or scaled like another variant of the same task.

    The other variant is one of the same routine and type, if any was run: types differ in the bytes they move, and so
    in the time that memory adds in a network.

    Args:
        tables: times measured alone.
        found: times measured in the network.
    """
    measured = dict(tables.measured)
    for key in tables.variants:
        if pairs := _pairs(tables, network_times, key):
            measured[key] = {
                name: _moved(
                    measurement, network_times.layers.get((key, name)), tables.seconds(key, name), _alike(name, pairs)
                )
                for name, measurement in tables.measured[key].items()
            }
    ratios = {kind.target.device: 1.0 for kind in tables.adapts}
    for device in ratios:
        own = {kind: alone for kind, alone in tables.adapts.items() if kind.target.device == device}
        known = [
            network_times.adapts[kind] / alone for kind, alone in own.items() if alone and kind in network_times.adapts
        ]
        if known:
            ratios[device] = float(np.clip(np.median(known), LEAST_RATIO, MOST_RATIO))
    adapts = {
        kind: network_times.adapts.get(kind, alone * ratios[kind.target.device])
        for kind, alone in tables.adapts.items()
    }
    return replace(tables, measured=measured, adapts=adapts)


def _pairs(tables: Tables, network_times: InNetworkTimes, key: str) -> dict[str, tuple[float, float]]:
    """Times alone and in the network of the variants of a task that were run there, by descriptor."""
    alone = {name: tables.seconds(key, name) for task, name in network_times.layers if task == key}
    return {name: (taken, network_times.layers[key, name]) for name, taken in alone.items() if taken is not None}


def _alike(name: str, pairs: Mapping[str, tuple[float, float]]) -> list[tuple[float, float]]:
    """The pairs of variants that differ from ``name`` only in parameters; all pairs of its device if there are none.

    Workgroups that share a layer's weights keep a part of them in each core's cache. What the network does to a variant
    with another number of these tells nothing of that, so that it keeps its time alone, and runs once.
    """
    own, device, shares = without_parameters(name), device_in(name), _shares(name)
    same = {other: pair for other, pair in pairs.items() if without_parameters(other) == own}
    others = same or {other: pair for other, pair in pairs.items() if device_in(other) == device}
    return [pair for other, pair in others.items() if _shares(other) == shares]


def _shares(name: str) -> int:
    """Workgroups that share the weights of a recurrent layer; 1 for all others."""
    descriptor = Descriptor.parse(name)
    return 1 if descriptor is None else descriptor.parameters.get(SHARES, 1)


def _moved(
    measurement: Measurement, in_network: float | None, alone: float | None, pairs: Sequence[tuple[float, float]]
) -> Measurement:
    """A measurement with its time in the network, or alone if nothing like it was timed there; unchanged if it failed.

    It is no longer relative to candidate 0, whose time changes too.
    """
    if alone is None:
        return measurement
    if alone <= NO_TIME:
        pairs = ()
    estimates = [scaled(alone, *pair) for pair in pairs] or [alone]
    seconds = in_network if in_network is not None else float(np.mean(estimates))
    return replace(measurement, samples=(seconds,), baseline_samples=())
