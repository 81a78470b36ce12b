"""Observes the second moments of what a product reads, by which errors of its weights weigh in its results."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sartor.onnx_model.graphs.graph import Array


@dataclass
class SecondMoments:
    """The sum of ``x^T x`` over all rows ``x`` of a tensor, its last axis.

    Attributes:
        total: ``[depth, depth]`` in f64; None before the first sample.
    """

    total: Array | None = None

    def observe(self, array: Array) -> None:
        """Take the tensor's values on one more sample into account."""
        rows = array.reshape(-1, array.shape[-1]).astype(np.float32)
        moments = (rows.T @ rows).astype(np.float64)
        self.total = moments if self.total is None else self.total + moments

    def range(self) -> tuple[float, float]:
        """The range within which the root mean square of each channel lies."""
        return (0.0, 0.0) if self.total is None else (0.0, float(np.sqrt(self.total.diagonal().max(initial=0.0))))
