"""The batches of a campaign. A batch depends on its number only, so an interrupted campaign can continue."""

from __future__ import annotations

import numpy as np

from sartor.policies import Precision
from tools.fuzz.jobs import Batch
from tools.fuzz.models import OPSETS, Family
from tools.fuzz.trial import PlanSeed, Setting

MODELS = 24
"""Models in a batch, which share the fixed costs of an import and a compilation."""
OPEN_MODELS = 6
"""The same where dimensions are open, and each model is compiled alone."""

_FAMILIES = (Family.FLOAT,) * 5 + (Family.QUANTISED,) * 2 + (Family.HALF, Family.INTEGER)
# The host, and two x86-64 levels that all supported processors implement.
_ARCHITECTURES = ("host", "host", "host", "x86-64-v3", "x86-64-v3", "x86-64-v2")
# Of CPUs none multiplies TF32, what a model permits is not asked for, and weights of both widths are drawn apart.
_LEFT_OUT = (Precision.F32, Precision.TF32, Precision.MIXED_WEIGHTS)
_NARROWER = tuple(each for each in Precision if each not in _LEFT_OUT and not each.is_permitted)
_NARROW, _UNSPLIT = 0.5, 0.1


def open_batch(number: int, models: int = OPEN_MODELS) -> Batch:
    """Return the batch of a number of models with an open dimension, in their own types."""
    random = np.random.default_rng([number, 52])
    opset = OPSETS[int(random.integers(len(OPSETS)))]
    plan = PlanSeed(Setting("host", int(random.integers(1, 3))), number)
    return Batch(tuple(range(number * models, (number + 1) * models)), Family.FLOAT, opset, (plan,), opens=True)


def batch(number: int, models: int = MODELS) -> Batch:
    """Return the batch of a number."""
    random = np.random.default_rng([number, 18])
    family = _FAMILIES[int(random.integers(len(_FAMILIES)))]
    architecture = _ARCHITECTURES[int(random.integers(len(_ARCHITECTURES)))]
    opset = OPSETS[int(random.integers(len(OPSETS)))]
    precision = Precision.F32
    if family is Family.FLOAT and random.random() < _NARROW:
        precision = _NARROWER[int(random.integers(len(_NARROWER)))]
    # A random plan costs as much as all else together, and another model shows more than another plan of the same.
    plans = [PlanSeed(Setting(architecture, int(random.integers(1, 4)), precision), number)]
    if random.random() < _UNSPLIT:
        plans.append(PlanSeed(Setting(architecture)))
    return Batch(tuple(range(number * models, (number + 1) * models)), family, opset, tuple(plans))
