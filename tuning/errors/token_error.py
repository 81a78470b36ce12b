"""The error of a decoder's outputs: how often another token is likeliest, and how far distributions are apart.

Logits of a sample are teacher-forced: each position has the tokens before it from the sample, not from earlier outputs.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sartor.errors import UsageError
from sartor.runtime.driver.signature import Array
from sartor.runtime.output_error import BoolArray, FloatArray

_LEAST_RANK = 2
_LOGITS = re.compile(r"(?:^|[^a-z])logits?$", re.IGNORECASE)
# Caches of attention, and other states, as exporters name them.
_STATES = re.compile(r"(?:present|past|new_|next_)|.*(?:key|value|cache|state|hidden)s?(?:$|[^a-z])", re.IGNORECASE)
# Sums of some thousand products in f32 are that exact.
_ROUNDING = 16 * float(np.finfo(np.float32).eps)


@dataclass(frozen=True)
class TokenError:
    """How far logits ``[…, tokens]`` are from the expected ones, over all positions.

    Attributes:
        disagreement: the fraction of positions at which another token is likeliest, but for ties within rounding.
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


def logits_among(outputs: Sequence[Array], names: Sequence[str] = ()) -> int:
    """The position of the logits among a model's outputs: the floats that are named so, else those with the largest
    last dimension, of outputs that are not named as states if there are any.

    Args:
        outputs: of a model.
        names: of the outputs, if they are known.

    Raises:
        UsageError: if no output can be logits, or two are as large.
    """
    sizes = [
        output.shape[-1] if output.ndim >= _LEAST_RANK and np.issubdtype(output.dtype, np.floating) else 0
        for output in outputs
    ]
    known = list(names) if len(names) == len(sizes) else [""] * len(sizes)
    named = [bool(_LOGITS.search(name)) for name in known]
    others = [not _STATES.match(name) for name in known]
    largest, some = 0, sizes
    for likely in (named, others, [True] * len(sizes)):
        some = [size if is_likely else 0 for is_likely, size in zip(likely, sizes, strict=True)]
        largest = max(some, default=0)
        if largest > 1 and some.count(largest) == 1:
            return some.index(largest)
    raise UsageError(
        "the error measure tokens compares distributions over tokens, and the model has "
        f"{'no output' if largest <= 1 else f'{some.count(largest)} outputs'} of floats, [..., tokens], with the "
        "largest last dimension; name one of them logits, choose another --error-measure, or give a function"
    )


def token_error(logits: Array, expected: Array) -> TokenError:
    """Compare logits ``[…, tokens]``; those of another shape, or with NaN or infinity elsewhere, agree nowhere."""
    if logits.shape != expected.shape:
        return TokenError(1.0, math.inf)
    if expected.size == 0:
        return TokenError(0.0, 0.0)
    own, right = (rows.reshape(-1, rows.shape[-1]).astype(np.float64) for rows in (logits, expected))
    missing = (_is_no_number(own) != _is_no_number(right)).any(-1)
    own, right = (np.where(np.isnan(rows), -np.inf, rows) for rows in (own, right))
    differs = missing | _chooses_less(own, right, expected.dtype)
    divergence = np.where(missing, np.inf, _divergence(_log_softmax(own), _log_softmax(right)))
    return TokenError(float(np.mean(differs)), float(np.mean(divergence)))


def _chooses_less(own: FloatArray, right: FloatArray, dtype: np.dtype[Any]) -> BoolArray:
    """Where the likeliest token is expected to be less likely than another, by more than rounding explains."""
    eps = float(np.finfo(dtype).eps)
    largest = np.where(np.isfinite(right), np.abs(right), 0.0).max(-1)
    chosen = np.take_along_axis(right, own.argmax(-1)[:, None], -1)[:, 0]
    less: BoolArray = chosen < right.max(-1) - max(eps, min(16 * eps, _ROUNDING)) * largest
    return less


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
