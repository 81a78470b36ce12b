"""Settings that follow from others."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sartor.config import DEFAULT_MAX_ERROR, LOW_PRECISION_MAX_ERROR, CompileConfig, Precision


@pytest.mark.parametrize("precision", Precision)
def test_the_usual_error_is_that_of_the_precision_whenever_it_is_set(precision: Precision) -> None:
    usual = DEFAULT_MAX_ERROR if precision is Precision.F32 else LOW_PRECISION_MAX_ERROR
    assert CompileConfig(threads=1, precision=precision).allowed_error == usual
    assert replace(CompileConfig(threads=1), precision=precision).allowed_error == usual


@pytest.mark.parametrize("given", [0.0, 1e-6, 0.5])
def test_an_error_that_is_given_holds_for_every_precision(given: float) -> None:
    config = CompileConfig(threads=1, max_error=given)
    assert {replace(config, precision=each).allowed_error for each in Precision} == {given}
