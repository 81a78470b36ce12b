"""The distribution of a tensor's values: a sample per channel, propagated while a graph is built.

Weights, biases and batch norm statistics of realistic scale need the mean and variance of what they act on.
Carrying a sample through every operator gives both for any activation, pooling or merge without running the
network: in milliseconds a layer, and independent of how a machine's libraries round.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

SAMPLES = 64

Vector = NDArray[np.float64]
Sample = NDArray[np.float64]


def _normal_quantiles() -> Vector:
    """Return `SAMPLES` quantiles of N(0, 1), rescaled to a variance of exactly one."""
    inverse = NormalDist().inv_cdf
    quantiles = np.array([inverse((index + 0.5) / SAMPLES) for index in range(SAMPLES)])
    quantiles /= np.sqrt(np.mean(quantiles**2))
    return quantiles


_NORMAL = _normal_quantiles()


def sigmoid(sample: Sample) -> Sample:
    """Return the logistic function of each value."""
    return np.asarray(1 / (1 + np.exp(-sample)))


def hard_sigmoid(sample: Sample) -> Sample:
    """Return the piecewise linear sigmoid with slope 1/6."""
    return np.clip(sample / 6 + 0.5, 0, 1)


def gelu(sample: Sample) -> Sample:
    """Return the tanh approximation of the GELU (Hendrycks, Gimpel 2016, section 2)."""
    return np.asarray(0.5 * sample * (1 + np.tanh(np.sqrt(2 / np.pi) * (sample + 0.044715 * sample**3))))


@dataclass(frozen=True, eq=False)
class Distribution:
    """Samples `[channels, SAMPLES]` in no meaningful order; one row may stand for all channels."""

    sample: Sample

    @classmethod
    def normal(cls, rng: np.random.Generator, mean: Vector | float = 0.0, std: Vector | float = 1.0) -> Distribution:
        """Return normal distributions, a row for each element of `mean` and `std`, independent of each other."""
        means, stds = np.broadcast_arrays(np.atleast_1d(mean), np.atleast_1d(std))
        rows = np.tile(_NORMAL, (len(means), 1))
        return cls(means[:, np.newaxis] + stds[:, np.newaxis] * rng.permuted(rows, axis=1))

    @classmethod
    def stacked(cls, parts: Sequence[Distribution], channels: Sequence[int]) -> Distribution:
        """Return the distribution of a concatenation along the channels."""
        return cls(np.concatenate([part.rows(count) for part, count in zip(parts, channels, strict=True)]))

    @property
    def mean(self) -> Vector:
        """Return the mean of each row."""
        return np.asarray(self.sample.mean(axis=1))

    @property
    def variance(self) -> Vector:
        """Return the variance of each row."""
        return np.asarray(self.sample.var(axis=1))

    @property
    def power(self) -> float:
        """Return the mean square over all channels."""
        return float(np.mean(self.sample**2))

    def rows(self, channels: int) -> Sample:
        """Return the sample with `channels` rows."""
        return np.broadcast_to(self.sample, (channels, SAMPLES))

    def map(self, function: Callable[[Sample], Sample]) -> Distribution:
        """Return the distribution after an elementwise function."""
        return Distribution(function(self.sample))

    def affine(self, slope: Vector, shift: Vector) -> Distribution:
        """Return the distribution after scaling and shifting each channel."""
        return Distribution(self.rows(len(slope)) * slope[:, np.newaxis] + shift[:, np.newaxis])

    def shared(self, rng: np.random.Generator) -> Distribution:
        """Return one row that stands for all channels, for values whose channels lose their identity."""
        quantiles = np.sort(self.sample, axis=None)[len(self.sample) // 2 :: len(self.sample)]
        return Distribution(rng.permutation(quantiles)[np.newaxis])

    def averaged(self, values: float) -> Distribution:
        """Return the distribution of averages over `values` independent values of a channel."""
        mean = self.sample.mean(axis=1, keepdims=True)
        return Distribution(mean + (self.sample - mean) / np.sqrt(values))

    def maximum(self, values: int, rng: np.random.Generator) -> Distribution:
        """Return the distribution of maxima over `values` independent values of a channel."""
        return Distribution(np.max([rng.permuted(self.sample, axis=1) for _ in range(values)], axis=0))

    def softmax(self, classes: int) -> Distribution:
        """Return a constant with the mean square of a softmax over an axis of `classes` elements."""
        exponentials = np.exp(np.resize(self.sample, classes) - self.sample.max())
        probabilities = exponentials / exponentials.sum()
        return Distribution(np.full((1, SAMPLES), np.sqrt(np.mean(probabilities**2))))

    def project(self, weight: NDArray[np.float32], inside: Vector, rng: np.random.Generator) -> Distribution:
        """Return the distribution after a weighted sum over channels and kernel positions.

        `weight` is `[groups, outputs, inputs, taps]`, with outputs and inputs counted per group; `inside[t]` is
        how often tap `t` reads the image and not padding. Inputs count as uncorrelated, which is right on average
        over zero-mean weights whatever the correlations are.
        """
        groups, _, inputs, _ = weight.shape
        rows = self.rows(groups * inputs)
        mean = rows.mean(axis=1).reshape(groups, inputs, 1)
        square = np.mean(rows**2, axis=1).reshape(groups, inputs, 1)
        means = np.einsum("goit,git->go", weight, mean * inside)
        variances = np.einsum("goit,goit,git->go", weight, weight, square * inside - (mean * inside) ** 2)
        return Distribution.normal(rng, means.reshape(-1), np.sqrt(variances.reshape(-1)))
