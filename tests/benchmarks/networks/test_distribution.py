"""The predicted means and variances of networks' values, and sizes of windows."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.networks.distribution import SAMPLES, Distribution
from benchmarks.networks.window import Window


def test_projection_predicts_a_padded_grouped_convolution() -> None:
    rng = np.random.default_rng(0)
    groups, outputs, inputs, size = 2, 3, 4, 6
    window = Window.of(3, 1, 1)
    weight = rng.standard_normal((groups, outputs, inputs, 9)).astype(np.float32)
    mean, std = rng.uniform(-1, 1, groups * inputs), rng.uniform(0.5, 2, groups * inputs)
    predicted = Distribution.normal(rng, mean, std).project(weight, window.inside(size, size), rng)

    images = rng.standard_normal((4000, groups * inputs, size, size)) * std[:, None, None] + mean[:, None, None]
    padded = np.pad(images, ((0, 0), (0, 0), (1, 1), (1, 1))).reshape(4000, groups, inputs, size + 2, size + 2)
    taps = [padded[..., row : row + size, column : column + size] for row in range(3) for column in range(3)]
    computed = np.einsum("goit,tngiyx->ngoyx", weight, np.stack(taps), optimize=True)
    np.testing.assert_allclose(predicted.mean, computed.mean(axis=(0, 3, 4)).reshape(-1), atol=0.05)
    # Padding moves the mean at the border in a correlated way, which the prediction leaves out.
    np.testing.assert_allclose(predicted.variance, computed.var(axis=(0, 3, 4)).reshape(-1), rtol=0.2)


def test_relu_of_a_normal_distribution_has_the_known_moments() -> None:
    rectified = Distribution.normal(np.random.default_rng(0)).map(lambda sample: np.maximum(sample, 0))
    assert rectified.mean[0] == pytest.approx(1 / np.sqrt(2 * np.pi), rel=0.02)
    assert rectified.power == pytest.approx(0.5, rel=0.02)


def test_softmax_keeps_the_sum_of_squares_between_uniform_and_one_hot() -> None:
    flat = Distribution(np.zeros((1, SAMPLES))).softmax(100)
    sharp = Distribution.normal(np.random.default_rng(0), std=50.0).softmax(100)
    assert flat.power * 100 == pytest.approx(0.01)
    assert 0.3 < sharp.power * 100 <= 1


def test_stacking_repeats_a_shared_row() -> None:
    rng = np.random.default_rng(0)
    shared, channels = Distribution.normal(rng, 5.0), Distribution.normal(rng, np.array([1.0, 2.0]))
    np.testing.assert_allclose(Distribution.stacked([shared, channels], [2, 2]).mean, [5, 5, 1, 2])


@pytest.mark.parametrize(
    ("window", "size", "expected"),
    [
        (Window.of(3, 1, 1), (56, 56), (56, 56)),
        (Window.of(3, 2, 0), (224, 224), (111, 111)),
        (Window.of((1, 7), 1, (0, 3)), (17, 17), (17, 17)),
        (Window.of(6, 2, (2, 2, 3, 3)), (56, 56), (28, 28)),
        (Window.of(3, 2, (0, 0, 1, 1)), (112, 112), (56, 56)),
    ],
)
def test_output_size(window: Window, size: tuple[int, int], expected: tuple[int, int]) -> None:
    assert window.output_size(*size) == expected


def test_taps_at_the_border_read_padding() -> None:
    inside = Window.of(3, 1, 1).inside(4, 4).reshape(3, 3)
    np.testing.assert_allclose(inside, np.outer([0.75, 1, 0.75], [0.75, 1, 0.75]))


def test_taps_without_padding_are_always_inside() -> None:
    np.testing.assert_array_equal(Window.of(5, 2, 0).inside(9, 11), np.ones(25))
