"""Worker side of every comparison: computes reference outputs by ONNX Runtime, and their scales."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from onnx import ModelProto

from sartor.errors import UnsupportedModelError, UsageError
from sartor.onnx_model.graphs.held_data import holding, is_holding, serialised
from sartor.onnx_model.graphs.prepared import is_long, prepared_model
from sartor.reference.disturbed_model import changes_feeds, disturb, disturbed_feeds, is_half, is_quantising
from sartor.reference.refused_node import naming_refused_node
from sartor.reference.sigmoid_outputs import refined, sigmoid_outputs
from sartor.reference.trusted.reference_model import ReferenceModel
from sartor.runtime.driver.bound_input import BoundInput, bound_feeds
from sartor.runtime.driver.signature import Array
from sartor.runtime.output_error import FULL, HALF, NARROW, QUANTISED, Lenience, Noise, scales_of

_LOG = logging.getLogger(__name__)
_MODELS, _FEEDS = 2, 2
THE_PREPARED_MODEL = "the rewritten model alone"
"""The reference of modules of which nobody can run the user's file."""
# Limit of the noise as a multiple of the runs' differences. ONNX Runtime's Sigmoid has an error of three roundings,
# which later layers may amplify more than a single rounding.
_MOST_SPREADS = 128.0
_ROUNDING = 2.0**-24
_MOST_KNOWN_BYTES = 64 << 20


@dataclass(frozen=True)
class Expected:
    """The reference outputs of one inference.

    Attributes:
        outputs: in the model's order.
        scales: for each output the scales by which differences of its elements are divided (``scales_of``).
    """

    outputs: Sequence[Array]
    scales: Sequence[Array]


class KnownOutputs:
    """Reference outputs of samples that were computed before, as far as there is room for them.

    One plan after the other is compared on the same samples, and large models take long.
    """

    def __init__(self) -> None:
        self._found: dict[str, Expected] = {}

    def of(self, feeds: Mapping[str, Array], compute: Callable[[Mapping[str, Array]], Expected]) -> Expected:
        """What is known of a sample, or else what ``compute`` gives."""
        key = _digest(feeds)
        if key in self._found:
            return self._found[key]
        outputs = compute(feeds)
        if sum(map(_bytes_of, (*self._found.values(), outputs))) <= _MOST_KNOWN_BYTES:
            self._found[key] = outputs
        return outputs


def _digest(feeds: Mapping[str, Array]) -> str:
    hashed = hashlib.sha256()
    for name, array in sorted(feeds.items()):
        hashed.update(f"{name} {array.dtype} {array.shape}\0".encode())
        hashed.update(array.tobytes())
    return hashed.hexdigest()


def _bytes_of(expected: Expected) -> int:
    return sum(array.nbytes for array in (*expected.outputs, *expected.scales))


class Disturbed:
    """Runs disturbed copies of a model, each changed by about the size of rounding errors.

    Args:
        prepared: the model, whose types and operators are known; it is not changed.
        threads: as for ``ReferenceModel``.
        narrow: whether the measured module computes in narrower types than the model.
        cuts: as for ``ReferenceModel``.
    """

    def __init__(
        self, prepared: ModelProto | Path | bytes, *, threads: int | None = None, narrow: bool, cuts: bool = True
    ) -> None:
        model = prepared if isinstance(prepared, ModelProto) else prepared_model(prepared)
        self._quantised = is_quantising(model)
        self._lenience = _lenience(model, narrow=narrow, quantised=self._quantised)
        self._runs: list[ReferenceModel] = []
        try:
            for seed in range(_MODELS):
                disturbed = _disturbed(model, seed)
                run = ReferenceModel(disturbed, threads=threads, layouts=not is_long(model), cuts=cuts)
                self._runs.append(run)
        except UnsupportedModelError as error:
            _LOG.warning("what rounding does to the outputs is not known: %s", error)

    def __call__(self, feeds: Mapping[str, Array]) -> list[list[Array]]:
        """The outputs of each run; empty if ONNX Runtime does not run the prepared model."""
        # Equal runs would count as several draws.
        draws = _FEEDS if changes_feeds(feeds, quantised=self._quantised) else 1
        try:
            return [
                run(disturbed_feeds(feeds, seed, quantised=self._quantised))
                for run in self._runs
                for seed in range(draws)
            ]
        except UsageError as error:
            _LOG.warning("what rounding does to the outputs is not known: %s", error)
            return []

    def scales(self, outputs: Sequence[Array], runs: Sequence[Sequence[Array]]) -> list[Array]:
        """The scales by which differences from ``outputs`` are divided, from the outputs of disturbed runs."""
        if not runs:
            return list(scales_of(outputs))
        noise = [_largest_change(right, [run[index] for run in runs]) for index, right in enumerate(outputs)]
        return list(scales_of(outputs, Noise(noise, len(runs), self._lenience)))


class Expectation:
    """Runs a model in ONNX Runtime, and computes the scales of its outputs.

    Args:
        models: files of the model; the first that can be loaded is used.
        prepared: the prepared model.
        threads: as for ``ReferenceModel``.
        narrow: whether the compared module computes in narrower types than the model.
        optimises: as for ``ReferenceModel``.
        bound: inputs with a fixed value, which the user's file takes and the prepared model does not.
        left_out: outputs of the user's file that the prepared model has not.

    Attributes:
        refused: the reasons why earlier models were not loaded, one sentence each.

    Raises:
        UnsupportedModelError: if ONNX Runtime can load none of the models.
    """

    def __init__(
        self,
        models: Sequence[Path | bytes],
        prepared: ModelProto | Path | bytes,
        *,
        threads: int | None = None,
        narrow: bool,
        optimises: bool = True,
        bound: Sequence[BoundInput] = (),
        left_out: Collection[str] = (),
    ) -> None:
        self.refused: list[str] = []
        known = prepared if isinstance(prepared, ModelProto) else prepared_model(prepared)
        try:
            load = partial(ReferenceModel, threads=threads, optimises=optimises, layouts=not is_long(known))
            self._reference = _first_loaded(models, load, self.refused)
        except UnsupportedModelError as error:
            raise naming_refused_node(error, known) from None
        taken, given = self._reference.input_names, self._reference.output_names
        self._kept = [index for index, name in enumerate(given) if name not in left_out]
        self._bound = {name: value for name, value in bound_feeds(bound).items() if name in taken}
        self._disturbed = Disturbed(known, threads=threads, narrow=narrow)
        self._sigmoids = sigmoid_outputs(known)

    @property
    def described(self) -> str:
        """Who computes the reference outputs, as messages say it."""
        return THE_PREPARED_MODEL if self.refused else self._reference.described

    def __call__(self, feeds: Mapping[str, Array]) -> Expected:
        """The reference outputs for some inputs.

        Raises:
            UsageError: if the feeds do not fit the model, or running it fails.
        """
        given, runs = self._reference({**feeds, **self._bound}), self._disturbed(feeds)
        outputs = [given[index] for index in self._kept]
        if runs:
            pairs = zip(outputs, runs[0], self._sigmoids, strict=True)
            outputs = [refined(right, exact) if sigmoid else right for right, exact, sigmoid in pairs]
        return Expected(outputs, self._disturbed.scales(outputs, runs))


def _first_loaded(
    models: Sequence[Path | bytes], load: Callable[[Path | bytes], ReferenceModel], refused: list[str]
) -> ReferenceModel:
    """ONNX Runtime on the first of the models that it can load; adds reasons for the others to ``refused``."""
    *others, last = models
    for model in others:
        try:
            return load(model)
        except UnsupportedModelError as error:
            refused.append(str(error))
    return load(last)


def _lenience(model: ModelProto, *, narrow: bool, quantised: bool) -> Lenience:
    if quantised:
        return QUANTISED
    if is_half(model):
        return HALF
    return NARROW if narrow else FULL


def _largest_change(right: Array, runs: Sequence[Array]) -> Array:
    """The largest change of each element in the runs; 0 if their shapes differ, as those of computed sizes may.

    It is limited to a multiple of the differences between the runs. Otherwise, a prepared model that computes something
    else would turn errors into noise. The multiple is above 1, as ONNX Runtime's functions have errors of several
    roundings.
    """
    alike = [run for run in runs if run.shape == right.shape and right.dtype.kind not in "OSU"]
    if not alike:
        return np.zeros(right.shape)
    with np.errstate(invalid="ignore"):
        wide = right.astype(np.float64)
        low = high = alike[0].astype(np.float64)
        changes = np.abs(high - wide)
        # One run at a time, as outputs may be large.
        for array in alike[1:]:
            values = array.astype(np.float64)
            low, high = np.minimum(low, values), np.maximum(high, values)
            changes = np.maximum(changes, np.abs(values - wide))
        # A few runs may all round to the same number, so the difference counts as at least one rounding.
        spread = np.maximum(high - low, _ROUNDING * np.abs(wide))
        return np.asarray(np.nan_to_num(np.minimum(changes, _MOST_SPREADS * spread), posinf=0.0))


def _disturbed(model: ModelProto, seed: int) -> bytes:
    """A disturbed copy of a model, serialised. The model itself is not disturbed, as the changes would add up."""
    copy = ModelProto()
    copy.CopyFrom(model)
    # Protobuf would copy all weights several times. What the model holds already is known in its own context alone.
    with nullcontext() if is_holding() else holding():
        disturb(copy, seed)
        return b"".join(serialised(copy))
