"""Accuracy reports of networks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import numpy as np
import pytest

from benchmarks.accuracy import errors
from sartor.reference.trusted.reference_model import ReferenceModel
from sartor.runtime.driver.signature import Array


def test_errors_are_those_of_the_worst_sample_and_the_share_of_other_answers() -> None:
    feeds = [{"x": np.array([[1.0, 2.0, 4.0]], np.float32)}, {"x": np.array([[4.0, 4.1, 0.0]], np.float32)}]

    def wrong(given: Mapping[str, Array]) -> list[Array]:
        return [given["x"] + np.array([[0.2, 0.0, 0.0]], np.float32)]

    def right(given: Mapping[str, Array]) -> list[Array]:
        return [given["x"]]

    relative, cosine, top1 = errors(wrong, cast(ReferenceModel, right), feeds)
    assert relative == pytest.approx(0.2 / 4.0)
    assert 0 < cosine < 1e-2
    assert top1 == 0.5
