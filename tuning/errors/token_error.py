"""The error of a decoder's outputs: how often another token is likeliest, and how far distributions are apart.

Logits of a sample are teacher-forced: each position has the tokens before it from the sample, not from earlier outputs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sartor.errors import UsageError
from sartor.runtime.driver.signature import Array
from sartor.runtime.output_error import BoolArray, FloatArray

_LEAST_RANK = 2


@dataclass(frozen=True)
class TokenError:
    """How far logits ``[…, tokens]`` are from the expected ones, over all positions.

    Attributes:
        disagreement: the fraction of positions at which another token is likeliest.
        divergence: the mean Kullback-Leibler divergence of the distribution from the expected one, in nats.
    """

    disagreement: float
    divergence: float

    @property
    def error(self) -> float:
        """The larger one of the disagreement, the part of greedily chosen tokens that change, and the most that the
        probability of any set of tokens changes on average, which the root of half the divergence bounds (Pinsker's
        inequality; Cover and Thomas, Elements of Information Theory, lemma 11.6.1)."""
        return max(self.disagreement, min(1.0, math.sqrt(self.divergence / 2)))


def logits_among(outputs: Sequence[Array]) -> int:
    """The position of the logits among a model's outputs: the floats with the largest last dimension.

    Raises:
        UsageError: if no output can be logits, or two are as large.
    """
    sizes = [
        each.shape[-1] if each.ndim >= _LEAST_RANK and np.issubdtype(each.dtype, np.floating) else 0 for each in outputs
    ]
    largest = max(sizes, default=0)
    if largest <= 1 or sizes.count(largest) > 1:
        raise UsageError(
            "the error measure tokens compares distributions over tokens, and the model has "
            f"{'no output' if largest <= 1 else f'{sizes.count(largest)} outputs'} of floats, [..., tokens], with the "
            "largest last dimension; choose another --error-measure, or give a function"
        )
    return sizes.index(largest)


def token_error(logits: Array, expected: Array) -> TokenError:
    """Compare logits ``[…, tokens]``; those of another shape, or with NaN or infinity elsewhere, agree nowhere."""
    if logits.shape != expected.shape:
        return TokenError(1.0, math.inf)
    if expected.size == 0:
        return TokenError(0.0, 0.0)
    own, right = (each.reshape(-1, each.shape[-1]).astype(np.float64) for each in (logits, expected))
    missing = (_is_no_number(own) != _is_no_number(right)).any(-1)
    own, right = (np.where(np.isnan(each), -np.inf, each) for each in (own, right))
    differs = missing | (own.argmax(-1) != right.argmax(-1))
    divergence = np.where(missing, np.inf, _divergence(_log_softmax(own), _log_softmax(right)))
    return TokenError(float(np.mean(differs)), float(np.mean(divergence)))


def _is_no_number(rows: FloatArray) -> BoolArray:
    """Where logits are NaN or infinite; minus infinity masks a token."""
    return np.isnan(rows) | np.isposinf(rows)


def _log_softmax(rows: FloatArray) -> FloatArray:
    """Logarithms of the probabilities of each row, whose largest number counts as finite."""
    with np.errstate(invalid="ignore", divide="ignore"):
        shifted = np.nan_to_num(rows - rows.max(-1, keepdims=True), nan=0.0, posinf=0.0, neginf=-np.inf)
        logarithms: FloatArray = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
    return logarithms


def _divergence(own: FloatArray, right: FloatArray) -> FloatArray:
    """Kullback-Leibler divergence of each row; tokens that are impossible in ``right`` add nothing."""
    probabilities = np.exp(right)
    with np.errstate(invalid="ignore"):
        terms = np.where(probabilities > 0, probabilities * (right - own), 0.0)
    sums: FloatArray = np.maximum(terms.sum(-1), 0.0)
    return sums
