"""Training trees by XGBoost (Chen and Guestrin, 2016), with ACLTuner's hyperparameters."""

from __future__ import annotations

import sys
from importlib import import_module

import numpy as np
from numpy.typing import NDArray

from sartor.tuning.search.boosting.trees import Trees

IS_LOADABLE = sys.flags.optimize < 2
"""Whether Python keeps docstrings: XGBoost changes some while it is imported, and fails without."""

# ACLTuner's hyperparameters (section 2.2) except alpha, which would shrink logarithms to zero. One thread, because
# histograms that several threads sum depend on the threads' order.
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


def load() -> None:
    """Import XGBoost if that is possible, which takes a second or two."""
    if IS_LOADABLE:
        import_module("xgboost")


def trained(
    rows: NDArray[np.float64], targets: NDArray[np.float64], weights: NDArray[np.float64] | None = None
) -> Trees:
    """Train trees; equal rows in equal order give equal trees.

    Args:
        rows: features, of shape (rows, features).
        targets: what the trees are to predict, of shape (rows,).
        weights: how much each row counts, of shape (rows,); None if all count alike.
    """
    # Imported here because it takes seconds, and only tuning without stored measurements needs it.
    from xgboost import DMatrix, train

    return Trees.of(train(_SETTINGS, DMatrix(rows, targets, weight=weights, nthread=1), num_boost_round=_TREES))
