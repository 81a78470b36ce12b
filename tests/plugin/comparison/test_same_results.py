"""Networks are told apart by their results; rounding does not make another network of one."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest

from sartor.comparison import bench_job
from sartor.comparison.bench_job import BenchRuns
from sartor.comparison.same_results import difference_of
from sartor.runtime.driver.signature import Array, Signature

RNG = np.random.default_rng(0)
ONE, OTHER = (RNG.standard_normal((4, 16)).astype(np.float32) for _ in range(2))


@pytest.mark.parametrize(
    ("own", "other", "said"),
    [
        ([ONE], [OTHER], "output 0 is off by 1"),
        ([ONE, ONE], [ONE, OTHER], "output 1 is off by"),
        ([ONE], [ONE[:2]], "output 0 has the shape [2, 16], in the module [4, 16]"),
        ([ONE], [ONE, ONE], "it has 2 outputs and the module 1"),
    ],
)
def test_another_network_is_described(own: list[Array], other: list[Array], said: str) -> None:
    found = difference_of(own, other)
    assert found is not None
    assert said in found


@pytest.mark.parametrize(
    ("own", "other"),
    [
        (ONE, ONE + np.float32(0.05) * OTHER),
        (np.zeros_like(ONE), np.zeros_like(ONE)),
        (np.full_like(ONE, np.nan), np.full_like(ONE, np.nan)),
        (np.array([3, 7]), np.array([3, 8])),
    ],
)
def test_one_network_in_other_precision_is_not(own: Array, other: Array) -> None:
    assert difference_of([own], [other]) is None


def test_a_bench_against_another_network_says_so(caplog: pytest.LogCaptureFixture) -> None:
    signature = Signature("main", (), ())
    runs = BenchRuns(Path("net.vmfb"), signature, "cpu", 1, Path("o.onnx"), ("onnxruntime",), 1, {}, 1, exactly=True)
    with caplog.at_level(logging.WARNING):
        bench_job._warn_of_another_network(lambda: [ONE], {"onnxruntime": lambda: [ONE]}, runs)
        assert not caplog.messages
        bench_job._warn_of_another_network(lambda: [ONE], {"onnxruntime": lambda: [OTHER]}, runs)
    assert "computes something else from 'o.onnx' than 'net.vmfb'" in caplog.text
