"""Inputs that stand for a model's random operators: what they are drawn from where the caller gives none."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sartor.errors import UsageError
from sartor.runtime.driver.signature import Array, TensorSpec
from sartor.runtime.files.json_fields import FieldError, Fields, number, optional, text
from sartor.runtime.files.open_sizes import OpenSize

NORMAL, UNIFORM = "normal", "uniform"


@dataclass(frozen=True)
class Noise:
    """The distribution of an input of float32.

    Attributes:
        name: of the input.
        kind: ``NORMAL`` or ``UNIFORM``.
        first: the mean, or the lower end, which may be drawn.
        second: the standard deviation, or the upper end, which is not drawn.
        seed: the one that the model gives; None if it gives none.
    """

    name: str
    kind: str
    first: float
    second: float
    seed: float | None = None

    @staticmethod
    def read(content: object, where: str = "") -> Noise:
        """The fields of JSON data.

        Raises:
            FieldError: if they are not those of a distribution.
        """
        fields = Fields(content, where)
        name, kind = fields.take("name", text), fields.take("kind", text)
        first, second = float(fields.take("first", number)), float(fields.take("second", number))
        seed = fields.take("seed", optional(number), None)
        fields.end()
        if kind not in (NORMAL, UNIFORM):
            raise FieldError(where, f"'{kind}' is no distribution")
        return Noise(name, kind, first, second, None if seed is None else float(seed))

    def draw(self, random: np.random.Generator, shape: Sequence[int]) -> Array:
        """Independent numbers of float32."""
        if self.kind == NORMAL:
            drawn = random.standard_normal(shape, np.float32) * np.float32(self.second) + np.float32(self.first)
        else:
            # Rounding may reach the upper end, which is not in the range.
            drawn = random.random(shape, np.float32) * np.float32(self.second - self.first) + np.float32(self.first)
            if self.first < self.second:
                drawn = np.minimum(drawn, np.nextafter(np.float32(self.second), np.float32(self.first)))
        return np.asarray(drawn, np.float32)


class NoiseSource:
    """Draws the noise that callers do not give, anew for each inference. Threads may share it.

    Args:
        noise: the inputs.
        seed: of all; None for each one's own, and for another in each process where the model gives none.
        sizes: those that callers choose. One that no other input tells is the largest: of noise whose length is
            computed the model takes as much as it needs.
    """

    def __init__(self, noise: Sequence[Noise], seed: int | None, sizes: Sequence[OpenSize] = ()) -> None:
        self._noise, self._sizes = noise, sizes
        self._lock = threading.Lock()
        self._random = {
            input_of_noise.name: _generator(input_of_noise, index, seed) for index, input_of_noise in enumerate(noise)
        }

    def completed(self, feeds: Mapping[str, Any], specs: Sequence[TensorSpec]) -> Mapping[str, Any]:
        """The inputs with noise for those that are missing.

        Raises:
            UsageError: if the shape of one is not known.
        """
        missing = [noise for noise in self._noise if noise.name not in feeds]
        if not missing:
            return feeds
        shapes = {spec.name: spec.shape for spec in specs}
        with self._lock:
            drawn = {
                noise.name: noise.draw(self._random[noise.name], self._shape(noise.name, shapes[noise.name], feeds))
                for noise in missing
            }
        return {**feeds, **drawn}

    def _shape(self, name: str, shape: tuple[int | None, ...], feeds: Mapping[str, Any]) -> list[int]:
        """The shape of noise beside inputs."""
        return [self._size(name, axis, feeds) if size is None else size for axis, size in enumerate(shape)]

    def _size(self, name: str, axis: int, feeds: Mapping[str, Any]) -> int:
        for size in self._sizes:
            plain = [place for place in size.places if not place.besides]
            own = next((place for place in plain if (place.input, place.axis) == (name, axis)), None)
            if own is None:
                continue
            for place in plain:
                given = getattr(feeds.get(place.input), "shape", ())
                if place.axis < len(given):
                    return int(given[place.axis]) - place.offset + own.offset
            return size.most + own.offset
        raise UsageError(f"the shape of the random numbers '{name}' is not fixed; give an array for that input")


def _generator(noise: Noise, index: int, seed: int | None) -> np.random.Generator:
    if seed is not None:
        return np.random.default_rng([seed, index])
    if noise.seed is not None:
        return np.random.default_rng([int(np.float32(noise.seed).view(np.uint32)), index])
    return np.random.default_rng()
