"""Weights of quantised models give their integers again; others get steps of a 127th of the largest."""

from __future__ import annotations

import numpy as np
import pytest

from sartor.codegen.ir.channel_scales import channel_scales
from sartor.codegen.ir.layer import TensorType
from sartor.codegen.ir.packing import Packing, PadTo, Quantise, Reshape, Transpose


def _weights(least: int, most: int, shape: tuple[int, ...], seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Integers, and the reals that they stand for."""
    random = np.random.default_rng(seed)
    numbers = random.integers(least, most, shape, endpoint=True)
    scales = random.uniform(1e-4, 3e-2, (shape[0], *[1] * (len(shape) - 1))).astype(np.float32)
    return numbers, (numbers * scales).astype(np.float32)


@pytest.mark.parametrize(("least", "most"), [(-128, 127), (-127, 127), (-63, 20), (-128, -3), (0, 90)])
def test_numbers_are_found_again(least: int, most: int) -> None:
    numbers, reals = _weights(least, most, (24, 16, 3, 3), seed=abs(most))
    scales, is_exact = channel_scales(reals.reshape(24, -1))
    assert is_exact.all()
    found = np.rint(reals.reshape(24, -1) / scales[:, None])
    assert np.array_equal(found, numbers.reshape(24, -1))


def test_scales_are_found_to_the_last_digit() -> None:
    numbers, _ = _weights(-127, 127, (64, 27), seed=7)
    numbers[:, 0] = 127
    scales = np.random.default_rng(8).uniform(1e-4, 3e-2, 64).astype(np.float32)
    assert np.array_equal(channel_scales((numbers * scales[:, None].astype(np.float64)).astype(np.float32))[0], scales)


def test_other_weights_get_as_many_steps_below_zero_as_above() -> None:
    rows = np.random.default_rng(0).standard_normal((5, 200)).astype(np.float32)
    scales, is_exact = channel_scales(rows)
    assert not is_exact.any()
    np.testing.assert_allclose(scales, np.abs(rows).max(axis=1) / 127, rtol=1e-6)


def test_numbers_beyond_8_bits_are_not_exact() -> None:
    _, reals = _weights(-255, 255, (4, 300), seed=3)
    _, exact = _weights(-128, 127, (4, 300), seed=4)
    assert channel_scales(np.concatenate([reals, exact]))[1].tolist() == [False] * 4 + [True] * 4


def test_empty_and_zero_channels_have_a_scale() -> None:
    scales, is_exact = channel_scales(np.array([[0.0, 0.0], [0.5, 0.25]], np.float32))
    assert is_exact.all()
    assert (scales > 0).all()
    assert np.rint(np.float32(0.5) / scales[1]) * scales[1] == 0.5


def test_numbers_whose_scale_has_no_inverse_become_zeros() -> None:
    scales, is_exact = channel_scales(np.array([[3e-38, 1e-38], [1e-42, 0.0], [0.5, 0.25]], np.float32))
    assert is_exact.tolist() == [False, False, True]
    assert scales[:2].tolist() == [1.0, 1.0]
    assert np.isfinite(1 / scales).all()


def test_packed_numbers_are_those_of_the_model() -> None:
    numbers, reals = _weights(-128, 127, (32, 8), seed=5)
    packing = Packing((Transpose((1, 0)), Quantise(1, 16, (Transpose((1, 0)), Reshape((2, 16, 8))))))
    packed = packing.apply(reals)
    assert packing.is_exact(reals)
    assert np.array_equal(packed[:, : 16 * 8].reshape(32, 8), numbers)


@pytest.mark.parametrize("taps", [(), (2, 3)])
def test_the_type_is_that_of_what_is_packed(taps: tuple[int, ...]) -> None:
    _, reals = _weights(-128, 127, (20, 8, 5, 3), seed=6)
    steps = (PadTo((32, 8, 5, 3)), Reshape((2, 16, 8, 5, 3)))
    packing = Packing((Quantise(0, 16, steps, taps),))
    weight = TensorType.of(reals.shape, reals.dtype)
    assert packing.type_of(weight).shape == packing.apply(reals).shape


def test_weights_that_are_small_beside_the_largest_are_no_multiples_of_it() -> None:
    """One step of the largest would make zeros of them, which no bound on errors allowed."""
    rows = np.full((16, 16), 5e-4, np.float32)
    np.fill_diagonal(rows, 1)
    assert not channel_scales(rows)[1].any()
    rows[rows < 1] = 0
    assert channel_scales(rows)[1].all()
