"""Random decision trees as attributes of the operators that have them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
MODES = tuple(f"BRANCH_{name}" for name in ("LEQ", "LT", "GTE", "GT", "EQ", "NEQ"))
FEATURES = 4


class Trees:
    """Draws trees, and rows of features at and between their thresholds.

    Args:
        seed: of what is drawn.
        modes: of comparisons.
        tracks_nan: whether some nodes send what is not a number the other way.
    """

    def __init__(self, seed: int, modes: Sequence[str] = MODES[:1], *, tracks_nan: bool = False) -> None:
        self.generator = np.random.default_rng(seed)
        self._modes, self._tracks_nan = modes, tracks_nan

    def rows(self, count: int) -> Array:
        """Rows [count, FEATURES] of float32; with NaN if that is tracked."""
        whole = self.generator.integers(-2, 3, size=(count, FEATURES))
        rows = (whole + 0.5 * self.generator.integers(0, 2, size=whole.shape)).astype(np.float32)
        if self._tracks_nan:
            rows[self.generator.random(rows.shape) < 0.2] = np.nan
        return rows

    def attributes(
        self, prefix: str, count: int, depth: int, targets: Sequence[int], *, is_signed: bool = True
    ) -> dict[str, Any]:
        """Attributes of trees whose leaves have a value for each of ``targets``; trees end early at times."""
        names = ("treeids", "nodeids", "modes", "featureids", "values", "truenodeids", "falsenodeids")
        found: dict[str, Any] = {f"nodes_{name}": [] for name in names}
        weights: dict[str, Any] = {f"{prefix}_{name}": [] for name in ("treeids", "nodeids", "ids", "weights")}
        for tree in range(count):
            rows: list[tuple[Any, ...]] = []
            self._grow(rows, depth)
            for place, row in enumerate(rows):
                for name, value in zip(names, (tree, place, *row), strict=True):
                    found[f"nodes_{name}"].append(value)
                for target in targets if row[0] == "LEAF" else ():
                    number = self.generator.normal() if is_signed else self.generator.random() / count
                    for name, value in zip(weights, (tree, place, target, float(number)), strict=True):
                        weights[name].append(value)
        if self._tracks_nan:
            tracked = self.generator.integers(0, 2, size=len(found["nodes_modes"]))
            found["nodes_missing_value_tracks_true"] = tracked.tolist()
        return {**found, **weights}

    def _grow(self, rows: list[tuple[Any, ...]], depth: int) -> int:
        place = len(rows)
        rows.append(("LEAF", 0, 0.0, 0, 0))
        if depth and (place == 0 or self.generator.random() < 0.8):
            true, false = self._grow(rows, depth - 1), self._grow(rows, depth - 1)
            mode = self._modes[int(self.generator.integers(len(self._modes)))]
            threshold = float(self.generator.integers(-2, 3))
            rows[place] = (mode, int(self.generator.integers(FEATURES)), threshold, true, false)
        return place
