"""Ranges of the values between layers as plans keep them."""

from __future__ import annotations

from collections.abc import Mapping

from sartor.codegen.layer import ValueRef
from sartor.tuning.calibration.quantised_range import QuantisedRange


def named_ranges(ranges: Mapping[ValueRef, QuantisedRange]) -> dict[str, tuple[float, int]]:
    """Scale and zero point by ``layer:result``; a network input has no layer."""
    return {f"{ref.source or ''}:{ref.index}": (each.scale, each.zero_point) for ref, each in ranges.items()}


def ranges_of(named: Mapping[str, tuple[float, int]]) -> dict[ValueRef, QuantisedRange]:
    """What ``named_ranges`` wrote."""
    found = {}
    for name, (scale, zero) in named.items():
        layer, _, index = name.rpartition(":")
        found[ValueRef(layer or None, int(index))] = QuantisedRange(scale, zero, "int8")
    return found
