"""A cost model of variants, learned from the tuning database (ACLTuner, Kwon et al., 2023, section 2.2).

It predicts the factor by which a variant is slower than the least possible time of its task. That factor depends on
tiles, layouts and shapes in a similar way on all tasks, so measurements of one network serve the next. As in ACLTuner
the model is boosted trees (Chen and Guestrin, XGBoost, 2016).
"""

from __future__ import annotations

import functools
import logging
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from threading import Thread

import numpy as np
from numpy.typing import NDArray

from sartor.codegen.analysis.task_bounds import ideal_seconds
from sartor.codegen.ir.machines.core import WIDE, Core
from sartor.codegen.ir.variants.traits import DescribedVariant
from sartor.codegen.routine_registry import described
from sartor.tuning.records.measurement import Measurement, Status
from sartor.tuning.search.boosting import training
from sartor.tuning.search.boosting.trees import Trees
from sartor.tuning.search.features import features

_LOG = logging.getLogger(__name__)

FEWEST_SAMPLES = 24
"""With fewer samples, a learned model is no better than the analytic one."""

# Of a database only the newest are used: training on all of a large one would take longer than it saves.
_MOST_SAMPLES = 4000


@dataclass(frozen=True)
class Sample:
    """The time of one variant.

    Attributes:
        facts: of its task, as ``task_facts`` writes them.
        variant: its routine's traits and its parameters.
        seconds: time of one inference, more than 0.
    """

    facts: str
    variant: DescribedVariant
    seconds: float

    @staticmethod
    def of(measurement: Measurement) -> Sample | None:
        """The sample of a measurement; None if it failed, has no facts, or is of a variant that takes no time."""
        if measurement.status is not Status.OK or not measurement.facts:
            return None
        variant = described(measurement.key.variant)
        return None if variant.traits.is_free else Sample(measurement.facts, variant, measurement.time)

    @functools.cached_property
    def features(self) -> list[float]:
        """What a model knows of it; computed once, as a compilation trains several models on thousands of samples.

        Raises:
            ValueError: if ``facts`` cannot be parsed.
        """
        return features(self.facts, self.variant)

    def taking(self, seconds: float) -> Sample:
        """The same sample with another time."""
        other = replace(self, seconds=seconds)
        # Features do not depend on the time.
        if (known := self.__dict__.get("features")) is not None:
            other.__dict__["features"] = known
        return other


def load_ahead(known: Callable[[], object] = lambda: None, *, trains: bool = True) -> None:
    """Load in a thread what is ``known`` and, if a model will be trained, the library for that, which takes a second or
    two: other processes import or compile meanwhile.
    """

    if trains and not training.IS_LOADABLE:
        _LOG.warning("no cost model is trained: its library needs docstrings, which Python leaves out with -OO")

    def load() -> None:
        known()
        if trains:
            training.load()

    Thread(target=load, daemon=True).start()


def samples_of(measurements: Iterable[Measurement]) -> list[Sample]:
    """The samples of the newest measurements, as many as a model is trained on."""
    newest = sorted(measurements, key=lambda measurement: -measurement.created)
    samples = (sample for measurement in newest if (sample := Sample.of(measurement)) is not None)
    return [sample for sample, _ in zip(samples, range(_MOST_SAMPLES), strict=False)]


@dataclass(frozen=True)
class CostModel:
    """Predicts the times of variants; ``fit`` trains one.

    Attributes:
        trees: predict logarithms of factors from features.
        core: of the machine, as for ``features``.
        pace: how many times as long everything takes as the trees say.
    """

    trees: Trees
    core: Core = WIDE
    pace: float = 1.0

    @staticmethod
    def fit(samples: Sequence[Sample], *, favours_fast: bool = False, core: Core = WIDE) -> CostModel | None:
        """Train a model on samples of one machine; None if there are fewer than ``FEWEST_SAMPLES``, or with -OO.

        Samples whose facts cannot be parsed are ignored. Equal samples in equal order give equal predictions.

        Args:
            samples: the samples.
            favours_fast: whether a slow variant weighs less than the fastest of its task, by the ratio of their times.
                Which of the fast ones is best matters, but few samples are too few for this.
            core: what the samples ran on, as for ``features``.
        """
        known = [sample for sample in samples if is_readable(sample)]
        if len(known) < FEWEST_SAMPLES or not training.IS_LOADABLE:
            return None
        rows = [sample.features if core is WIDE else features(sample.facts, sample.variant, core) for sample in known]
        targets = [math.log(sample.seconds / ideal_seconds(sample.facts)) for sample in known]
        weights = _weights(known) if favours_fast else None
        return CostModel(training.trained(np.array(rows), np.array(targets), weights), core)

    def seconds(self, facts: str, variants: Sequence[DescribedVariant]) -> list[float]:
        """Predict the seconds of variants of the task with these facts.

        Raises:
            ValueError: if ``facts`` cannot be parsed.
        """
        ideal = ideal_seconds(facts)
        if not variants:
            return []
        rows = np.array([features(facts, variant, self.core) for variant in variants])
        return [self.pace * ideal * math.exp(logarithm) for logarithm in self.trees.predict(rows).tolist()]

    def ranked(self, facts: str, variants: Sequence[DescribedVariant]) -> list[DescribedVariant]:
        """Variants of a task, sorted by predicted time.

        Raises:
            ValueError: if ``facts`` cannot be parsed.
        """
        predicted = self.seconds(facts, variants)
        return [variants[index] for index in sorted(range(len(variants)), key=lambda index: predicted[index])]


def is_readable(sample: Sample) -> bool:
    """Whether the facts of a sample, which may be from anywhere, are those of a task."""
    try:
        ideal_seconds(sample.facts)
    except ValueError:
        return False
    return True


def _weights(samples: Sequence[Sample]) -> NDArray[np.float64]:
    """The ratio of the time of the fastest sample with the same facts to that of each."""
    least: dict[str, float] = {}
    for sample in samples:
        least[sample.facts] = min(sample.seconds, least.get(sample.facts, sample.seconds))
    return np.array([least[sample.facts] / sample.seconds for sample in samples])
