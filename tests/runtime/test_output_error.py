"""Differences are divided by the scale of where they stand."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

from sartor.runtime.driver.signature import Array
from sartor.runtime.output_error import (
    FULL,
    HALF,
    NARROW,
    Noise,
    largest_error,
    output_error,
    output_scale,
    relative_error,
    scales_of,
)

RANDOM = np.random.default_rng(0)
NAN, INF = math.nan, math.inf


@pytest.mark.parametrize(
    ("output", "reference", "error"),
    [
        ([1.0, -4.0], [1.0, -4.0], 0.0),
        ([1.0, -4.0], [1.5, -4.0], 0.125),
        ([0.0, 0.0], [0.0, 0.0], 0.0),
        ([0.0, 0.25], [0.0, 0.0], 0.25),
        ([NAN, 2.0], [NAN, 2.0], 0.0),
        ([NAN, 2.0], [1.0, 2.0], INF),
        ([1.0, 2.0], [NAN, 2.0], INF),
        ([INF, 2.0], [INF, 1.0], 1.0),
        ([INF, 2.0], [-INF, 2.0], INF),
        ([INF, 2.0], [1e30, 2.0], INF),
        ([1e30, 2.0], [INF, 2.0], INF),
        ([NAN, NAN], [NAN, NAN], 0.0),
        ([], [], 0.0),
    ],
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_error_of_floats(output: list[float], reference: list[float], error: float, dtype: type) -> None:
    assert output_error(np.array(output, dtype), np.array(reference, dtype)) == error


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_small_floats_are_compared_widened(dtype: type) -> None:
    large: Array = np.array([30000.0, -30000.0]).astype(dtype)
    assert output_error(-large, large) == 2.0  # the difference itself overflows in 16 bits


def test_integers_are_exact() -> None:
    reference = np.arange(100, dtype=np.int64)
    output = reference.copy()
    assert output_error(output, reference) == 0
    output[0] += 1
    assert output_error(output, reference) == INF
    assert output_error(np.array([True]), np.array([False])) == INF


def test_the_worst_output_counts() -> None:
    ones: Array = np.ones(4, np.float32)
    assert relative_error([ones, ones * 1.5], [ones, ones]) == 0.5
    assert relative_error([ones], [ones, ones]) == INF
    assert relative_error([ones.reshape(2, 2)], [ones]) == INF
    assert relative_error([], []) == 0


def _boxes_and_scores() -> Array:
    scales: Array = np.array([640.0, 640.0, 0.5, 1e-3])
    return (RANDOM.uniform(0.1, 1.0, (1, 4, 100)) * scales[:, None]).astype(np.float32)


@pytest.mark.parametrize("channel", range(4))
def test_every_channel_has_its_own_scale(channel: int) -> None:
    reference = _boxes_and_scores()
    output = reference.copy()
    output[:, channel] = 0
    assert output_error(output, reference) == 1.0
    assert largest_error(output, reference) == pytest.approx(reference[:, channel].max() / reference.max())


def test_every_entry_of_a_batch_has_its_own_scale() -> None:
    reference = np.concatenate([_boxes_and_scores(), 1e-3 * _boxes_and_scores()])
    output = reference.copy()
    output[1, 3] = 0
    assert output_error(output, reference) == 1.0


@pytest.mark.parametrize("mask", [-3.4e38, -1e9, -65504.0, -1e4])
def test_masks_say_nothing_about_the_scale_of_what_is_not_masked(mask: float) -> None:
    reference = RANDOM.standard_normal(1000)
    reference[100:] = mask
    output = reference.copy()
    output[:100] += 0.5
    assert output_error(output, reference) > 0.1
    output[:100], output[-1] = reference[:100], 0
    assert output_error(output, reference) == 1.0


def test_zeros_beside_a_mask_have_the_scale_of_what_is_not_masked() -> None:
    """As Relu makes them: a module that leaves it out must not be let off by the mask."""
    random = np.random.default_rng(0)
    values = random.standard_normal((1, 1000)).astype(np.float32)
    shown = random.random((1, 1000)) < 0.1
    right, wrong = (np.where(shown, each, np.float32(-1e9)) for each in (np.maximum(values, 0), values))
    assert relative_error([wrong], [right]) > 0.1
    assert relative_error([right], [right]) == 0


def test_values_that_are_small_by_chance_have_the_scale_of_the_others() -> None:
    for seed in range(200):
        reference = np.random.default_rng(seed).standard_normal((1, 100))
        np.testing.assert_array_equal(output_scale(reference), np.abs(reference).max())


def test_a_slice_of_zeros_has_the_scale_of_the_whole() -> None:
    reference = RANDOM.uniform(0.5, 1.0, (1, 4, 100))
    reference[:, 1] = 0
    assert output_scale(reference)[:, 1].min() > 0.9


def test_a_slice_is_never_seen_finer_than_its_noise() -> None:
    reference = _boxes_and_scores().astype(np.float64)
    noise = np.zeros_like(reference)
    noise[:, :2] = 640 * 1e-7
    noise[:, 3] = 1e-5
    scales = output_scale(reference, noise, 4, FULL)
    assert scales[0, 3].min() == pytest.approx(1e-5 * FULL.part, rel=0.2)
    assert scales[0, 2].max() <= 0.5
    noisier = output_scale(reference, 100 * noise, 4, FULL)
    assert noisier[0, 3].min() == pytest.approx(reference.max() * 1e-5 / (640 * 1e-7), rel=0.2)


def test_errors_like_the_noise_are_those_of_the_whole() -> None:
    """Slices add nothing where all are as inexact as rounding makes them."""
    reference = np.exp(RANDOM.uniform(-12, 3, (1, 50, 1))) * RANDOM.standard_normal((1, 50, 400))
    conditions = np.exp(RANDOM.uniform(0, 6, (1, 50, 1))) * np.abs(reference).max(axis=2, keepdims=True)
    noise = np.max(np.abs(RANDOM.standard_normal((4, *reference.shape))), axis=0) * conditions * 2e-7
    for narrow in (FULL, NARROW):
        scale = output_scale(reference, noise, 4, narrow)
        output = reference + RANDOM.standard_normal(reference.shape) * conditions * 1e-5
        assert output_error(output, reference, scale=scale) < 4 * max(
            largest_error(output, reference), 50 / narrow.part
        )


def test_noise_of_the_whole_output_is_a_fourth_of_the_usual_bound_at_most() -> None:
    reference = RANDOM.standard_normal((1, 64))
    noise = np.full_like(reference, 1e-2)
    assert output_error(reference + 1e-2, reference, scale=output_scale(reference, noise, 4, FULL)) <= 1.01e-3 / 4


def test_scales_of_several_outputs() -> None:
    outputs: list[Array] = [np.ones((2, 2), np.float32), np.arange(3)]
    first, second = scales_of(outputs, Noise([np.zeros((2, 2)), np.zeros(3)], 4))
    np.testing.assert_array_equal(first, 1)
    np.testing.assert_array_equal(second, 1)
    assert relative_error(outputs, outputs, scales=[first, second]) == 0
    assert scales_of([]) == []
    assert output_scale(np.zeros((0, 3), np.float32)).shape == (0, 3)
    assert output_scale(np.array(3.0, np.float32)) == 3.0


@pytest.mark.parametrize(
    ("dtype", "steps_off", "seen"), [(np.float16, 1, False), (np.float16, 4, True), (np.float32, 1, True)]
)
def test_a_step_of_subnormal_half_precision_is_no_error(dtype: type, steps_off: int, seen: bool) -> None:
    """Seven steps of 2^-24 beside large probabilities are a population of their own, with one significant digit."""
    step = 2.0**-24
    reference: Array = np.full(1000, 0.1, dtype)
    reference[::50] = 7 * step
    output = reference.copy()
    output[100] = (7 - steps_off) * step
    noise = Noise([np.zeros(1000)], 4, HALF)
    assert (relative_error([output], [reference], scales=scales_of([reference], noise)) > 3e-2) is seen


@pytest.mark.parametrize(("largest", "seen"), [(1.0, False), (1e-38, True)])
def test_subnormal_numbers_count_as_zero_beside_larger_ones(largest: float, seen: bool) -> None:
    """In slices of their own, and as values far below the others; an output of such numbers alone is lost by that."""
    reference = np.full((3, 40), largest, np.float32)
    reference[1], reference[2, ::2] = 1e-38 * np.linspace(0.5, 1, 40), 3e-39
    flushed = np.where(reference < np.finfo(np.float32).smallest_normal, 0, reference).astype(np.float32)
    assert (output_error(flushed, reference) > 1e-3) == seen
    wrong = reference.copy()
    wrong[1] += np.float32(1e-37)
    assert output_error(wrong, reference) > 1e-3
