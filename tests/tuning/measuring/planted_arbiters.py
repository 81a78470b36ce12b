"""Arbiters of cases that are no layer of any model. Workers import this module by name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sartor.runtime.driver.signature import Array


@dataclass(frozen=True)
class Adding:
    """Knows that the layer adds its weight, ``size`` numbers from ``start`` on, to its activation."""

    size: int
    start: float = 1.0
    layer: str = "Add_7"

    def weights(self) -> list[Array]:
        return [np.arange(self.size, dtype=np.float32) + np.float32(self.start)]

    def results(self, inputs: Sequence[Array]) -> list[Array] | None:
        return [inputs[0] + self.weights()[0]]


@dataclass(frozen=True)
class Ignorant(Adding):
    """Knows the layer's name alone."""

    def results(self, inputs: Sequence[Array]) -> list[Array] | None:
        return None


@dataclass(frozen=True)
class Unwanted(Adding):
    """Must not be asked."""

    def results(self, inputs: Sequence[Array]) -> list[Array] | None:
        raise AssertionError("the arbiter was asked")


@dataclass(frozen=True)
class Counting:
    """Knows that the layer adds its activation, in 8 bits, to itself; what it rounds otherwise is ``off`` by a step."""

    off: int
    layer: str = "Add_8"

    def weights(self) -> list[Array]:
        return []

    def results(self, inputs: Sequence[Array]) -> list[Array] | None:
        steps = np.zeros(inputs[0].size, np.int8)
        steps[: self.off] = 1
        return [inputs[0] + inputs[0] + steps.reshape(inputs[0].shape)]
