"""What a module is compared with is loaded once and computed once for a sample, as large models take long to load."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sartor.profiling import verify_job
from sartor.profiling.verify_job import References
from sartor.reference import expected_outputs
from sartor.reference.expected_outputs import Expected
from sartor.runtime.driver.signature import Array

FIRST, SECOND = ({"x": np.full(4, number, np.float32)} for number in (1, 2))


class _Counted:
    """In place of ONNX Runtime."""

    loaded = 0
    computed = 0

    def __init__(self, *_: object, **__: object) -> None:
        _Counted.loaded += 1
        self.refused, self.described = ["not the file"], "nobody"

    def __call__(self, feeds: Mapping[str, Array]) -> Expected:
        _Counted.computed += 1
        return Expected([2 * feeds["x"]], [np.ones(4)])


@pytest.fixture
def references(monkeypatch: pytest.MonkeyPatch) -> References:
    _Counted.loaded = _Counted.computed = 0
    monkeypatch.setattr(verify_job, "Expectation", _Counted)
    return References((Path("model.onnx"), b""), 1, False, ())


def _compare(references: References) -> None:
    for feeds in (FIRST, SECOND):
        np.testing.assert_array_equal(references(feeds).outputs[0], 2 * feeds["x"])
    references.unload()


def test_the_next_module_is_compared_with_what_is_known(references: References) -> None:
    assert not references.refused
    for _ in range(3):
        _compare(references)
    assert (_Counted.loaded, _Counted.computed) == (1, 2)
    assert list(references.refused) == ["not the file"]


def test_large_outputs_are_computed_again(references: References, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expected_outputs, "_MOST_KNOWN_BYTES", 16 + 32)
    _compare(references)
    _compare(references)
    assert (_Counted.loaded, _Counted.computed) == (2, 3)


@pytest.mark.parametrize(
    "other",
    [{"x": np.full((2, 2), 1, np.float32)}, {"x": np.full(4, 1, np.float64)}, {"y": FIRST["x"]}],
    ids=["shape", "type", "name"],
)
def test_samples_are_told_apart(other: dict[str, Any]) -> None:
    assert expected_outputs._digest(FIRST) == expected_outputs._digest({"x": FIRST["x"].copy()})
    assert expected_outputs._digest(FIRST) != expected_outputs._digest(other)
