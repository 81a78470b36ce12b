"""A model of how long variants take, learned from the tuning database (ACLTuner, Kwon et al., 2023, section 2.2).

It predicts by which factor a variant is slower than the least that its task could take. That factor follows from tiles,
layouts and shapes much as it does on other tasks, so what was measured for one network serves the next. As in ACLTuner
it is boosted trees (Chen and Guestrin, XGBoost, 2016).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sartor.codegen.analysis.task_bounds import ideal_seconds
from sartor.codegen.ir.variants.traits import DescribedVariant
from sartor.codegen.routine_registry import described
from sartor.tuning.records.measurement import Measurement, Status
from sartor.tuning.search.features import features

if TYPE_CHECKING:
    from xgboost import Booster

FEWEST_SAMPLES = 24
"""Below, nothing is learned that the analytic model does not know."""

# The newest count: training on all of a large database would take longer than it saves.
_MOST_SAMPLES = 4000

# ACLTuner's hyperparameters (section 2.2) but for alpha, which would shrink logarithms to nothing. One thread, because
# histograms that several add up depend on which is first.
_TREES = 100
_SETTINGS = {
    "objective": "reg:squarederror",
    "learning_rate": 0.2,
    "max_depth": 9,
    "min_child_weight": 2,
    "gamma": 0,
    "subsample": 0.53,
    "colsample_bytree": 0.8,
    "tree_method": "hist",
    "nthread": 1,
    "seed": 0,
    "verbosity": 0,
}


@dataclass(frozen=True)
class Sample:
    """What one variant took.

    Attributes:
        facts: of its task, as ``task_facts`` writes them.
        variant: what is known of it.
        seconds: one inference, more than 0.
    """

    facts: str
    variant: DescribedVariant
    seconds: float

    @staticmethod
    def of(measurement: Measurement) -> Sample | None:
        """The sample in a measurement; None if it failed, or nothing is known of its task."""
        if measurement.status is not Status.OK or not measurement.facts:
            return None
        return Sample(measurement.facts, described(measurement.key.variant), measurement.time)


def samples_of(measurements: Iterable[Measurement]) -> list[Sample]:
    """The samples in measurements, of the newest as many as a model is trained on."""
    newest = sorted(measurements, key=lambda each: -each.created)
    found = (sample for each in newest if (sample := Sample.of(each)) is not None)
    return [sample for sample, _ in zip(found, range(_MOST_SAMPLES), strict=False)]


@dataclass(frozen=True)
class CostModel:
    """Predicts seconds of variants; ``fit`` makes one."""

    _booster: Booster

    @staticmethod
    def fit(samples: Sequence[Sample]) -> CostModel | None:
        """A model of samples of one machine; None if they are fewer than ``FEWEST_SAMPLES``.

        Samples whose facts do not read are left out. Equal samples in equal order give equal predictions.
        """
        # Imported here because only a cold tune needs it.
        from xgboost import DMatrix, train

        known = [each for each in samples if _is_readable(each)]
        if len(known) < FEWEST_SAMPLES:
            return None
        rows = [features(each.facts, each.variant) for each in known]
        targets = [math.log(each.seconds / ideal_seconds(each.facts)) for each in known]
        return CostModel(train(_SETTINGS, DMatrix(np.array(rows), np.array(targets)), num_boost_round=_TREES))

    def seconds(self, facts: str, variants: Sequence[DescribedVariant]) -> list[float]:
        """Predicted seconds of variants of the task with these facts.

        Raises:
            ValueError: if ``facts`` are none.
        """
        from xgboost import DMatrix

        ideal = ideal_seconds(facts)
        if not variants:
            return []
        factors = self._booster.predict(DMatrix(np.array([features(facts, each) for each in variants])))
        return [ideal * math.exp(each) for each in factors.tolist()]

    def ranked(self, facts: str, variants: Sequence[DescribedVariant]) -> list[DescribedVariant]:
        """Variants of a task, the one predicted to be fastest first.

        Raises:
            ValueError: if ``facts`` are none.
        """
        predicted = self.seconds(facts, variants)
        return [variants[index] for index in sorted(range(len(variants)), key=lambda index: predicted[index])]


def _is_readable(sample: Sample) -> bool:
    try:
        ideal_seconds(sample.facts)
    except ValueError:
        return False
    return True
