"""Worker side of every comparison: what ONNX Runtime makes of a model, and what its outputs are measured by."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from onnx import ModelProto

from sartor.errors import UnsupportedModelError, UsageError
from sartor.onnx_model.graphs.prepared import prepared_model
from sartor.reference.disturbed_model import disturb, disturbed_feeds, is_half, is_quantising
from sartor.reference.sigmoid_outputs import refined, sigmoid_outputs
from sartor.runtime.driver.signature import Array
from sartor.runtime.output_error import FULL, HALF, NARROW, QUANTISED, Lenience, Noise, scales_of
from sartor.runtime.reference import OnnxRuntimeReference

_LOG = logging.getLogger(__name__)
_MODELS, _FEEDS = 2, 2
# ONNX Runtime's Sigmoid is off by three roundings, and what follows may make more of it than of one of them.
_MOST_SPREADS = 128.0
_ROUNDING = 2.0**-24


@dataclass(frozen=True)
class Expected:
    """What is right for one inference.

    Attributes:
        outputs: in the model's order.
        scales: for each output, by element, what a difference is divided by (``scales_of``).
    """

    outputs: Sequence[Array]
    scales: Sequence[Array]


class Disturbed:
    """Runs of a model, each of which is off by what rounding may change.

    Args:
        prepared: the model, whose types and operators are known; it is not changed.
        threads: as for ``OnnxRuntimeReference``.
        narrow: whether what is measured rounds to less than the model's own types.
    """

    def __init__(self, prepared: ModelProto | Path | bytes, *, threads: int | None = None, narrow: bool) -> None:
        model = prepared if isinstance(prepared, ModelProto) else prepared_model(prepared)
        self._quantised = is_quantising(model)
        self._lenience = _lenience(model, narrow=narrow, quantised=self._quantised)
        self._runs: list[OnnxRuntimeReference] = []
        try:
            for seed in range(_MODELS):
                self._runs.append(OnnxRuntimeReference(_disturbed(model, seed), threads=threads))
        except UnsupportedModelError as error:
            _LOG.warning("what rounding does to the outputs is not known: %s", error)

    def __call__(self, feeds: Mapping[str, Array]) -> list[list[Array]]:
        """The outputs of each run; none if the model runs in the user's form only."""
        try:
            return [
                run(disturbed_feeds(feeds, seed, quantised=self._quantised))
                for run in self._runs
                for seed in range(_FEEDS)
            ]
        except UsageError as error:
            _LOG.warning("what rounding does to the outputs is not known: %s", error)
            return []

    def scales(self, outputs: Sequence[Array], runs: Sequence[Sequence[Array]]) -> list[Array]:
        """What differences from ``outputs`` are divided by, given what disturbed runs made of them."""
        if not runs:
            return list(scales_of(outputs))
        noise = [_largest_change(right, [run[index] for run in runs]) for index, right in enumerate(outputs)]
        return list(scales_of(outputs, Noise(noise, len(runs), self._lenience)))


class Expectation:
    """ONNX Runtime on a model, whose outputs come with their scales.

    Args:
        models: files of the model; the first that ONNX Runtime loads is run.
        prepared: the prepared model.
        threads: as for ``OnnxRuntimeReference``.
        narrow: whether what is compared rounds to less than the model's own types.

    Attributes:
        refused: why the models before the one that runs were not loaded, one sentence each.

    Raises:
        UnsupportedModelError: if ONNX Runtime loads none of the models.
    """

    def __init__(
        self,
        models: Sequence[Path | bytes],
        prepared: ModelProto | Path | bytes,
        *,
        threads: int | None = None,
        narrow: bool,
    ) -> None:
        self.refused: list[str] = []
        self._reference = _first_loaded(models, threads, self.refused)
        self._disturbed = Disturbed(prepared, threads=threads, narrow=narrow)
        self._sigmoids = sigmoid_outputs(prepared if isinstance(prepared, ModelProto) else prepared_model(prepared))

    def __call__(self, feeds: Mapping[str, Array]) -> Expected:
        """What is right for some inputs.

        Raises:
            UsageError: if the feeds do not fit the model or it fails on them.
        """
        outputs, runs = self._reference(feeds), self._disturbed(feeds)
        if runs:
            pairs = zip(outputs, runs[0], self._sigmoids, strict=True)
            outputs = [refined(right, exact) if sigmoid else right for right, exact, sigmoid in pairs]
        return Expected(outputs, self._disturbed.scales(outputs, runs))


def _first_loaded(models: Sequence[Path | bytes], threads: int | None, refused: list[str]) -> OnnxRuntimeReference:
    """ONNX Runtime on the first of the models that it loads; ``refused`` collects why others were not."""
    *others, last = models
    for model in others:
        try:
            return OnnxRuntimeReference(model, threads=threads)
        except UnsupportedModelError as error:
            refused.append(str(error))
    return OnnxRuntimeReference(last, threads=threads)


def _lenience(model: ModelProto, *, narrow: bool, quantised: bool) -> Lenience:
    if quantised:
        return QUANTISED
    if is_half(model):
        return HALF
    return NARROW if narrow else FULL


def _largest_change(right: Array, runs: Sequence[Array]) -> Array:
    """By element, from the right output to a run; 0 where runs have other shapes, as results of computed sizes may.

    What runs change among themselves bounds it: a prepared model that computes something else would make what is wrong
    look like noise. It may be some times as much, as ONNX Runtime's own functions are less exact than one rounding.
    """
    alike = [each.astype(np.float64) for each in runs if each.shape == right.shape and right.dtype.kind not in "OSU"]
    if not alike:
        return np.zeros(right.shape)
    with np.errstate(invalid="ignore"):
        wide = right.astype(np.float64)
        # A few runs may all round to the same number.
        spread = np.maximum(np.max(alike, axis=0) - np.min(alike, axis=0), _ROUNDING * np.abs(wide))
        changes = np.max([np.abs(each - wide) for each in alike], axis=0)
        return np.asarray(np.nan_to_num(np.minimum(changes, _MOST_SPREADS * spread), posinf=0.0))


def _disturbed(model: ModelProto, seed: int) -> bytes:
    """A changed copy of a model, serialised; changed twice, weights would be off by two units."""
    copy = ModelProto()
    copy.CopyFrom(model)
    disturb(copy, seed)
    return copy.SerializeToString()
