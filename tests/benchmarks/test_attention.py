"""Attention as plain nodes and as one operator are the same, so that their times may be compared."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks.attention import drawn, saved_model
from sartor.runtime.reference import OnnxRuntimeReference


def test_both_forms_of_attention_are_the_same(tmp_path: Path) -> None:
    paths = [saved_model(tmp_path, 2, 8, is_one=is_one) for is_one in (False, True)]
    for length in (1, 7, 24):
        feeds = drawn(16, length)
        (plain,), (one,) = (OnnxRuntimeReference(path)(feeds) for path in paths)
        np.testing.assert_allclose(plain, one, atol=1e-5)
        if length > 8:
            feeds["value"][:, -1] += 100
            np.testing.assert_allclose(OnnxRuntimeReference(paths[0])(feeds)[0], plain, atol=1e-5)
