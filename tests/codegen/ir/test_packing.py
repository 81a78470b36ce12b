"""Packing steps and the steps of quantised weights: values, element types, and what they promise without data."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from sartor.codegen.ir.channel_scales import channel_scales
from sartor.codegen.ir.layer import TensorType
from sartor.codegen.ir.packing import (
    Packing,
    PadTo,
    Quantise,
    Reshape,
    Round,
    RoundMantissa,
    Transpose,
    WinogradFilter,
    cut,
    narrowed,
)
from sartor.codegen.ir.proven_pairs import QuantisePairs

FILTER = TensorType((20, 12, 3, 3), "f32")
# As a product on 16 x 1 tiles asks for it: [OC, IC, KH, KW] to [K, N], then [N1, K1, N0, K0].
TILED = Packing(
    (
        Transpose((2, 3, 1, 0)),
        Reshape((108, 20)),
        PadTo((108, 32)),
        Reshape((108, 1, 2, 16)),
        Transpose((2, 0, 3, 1)),
    )
)


def values(tensor: TensorType) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(tensor.shape).astype(tensor.numpy_dtype)


@pytest.mark.parametrize(
    "packing",
    [Packing(), TILED, Packing((Transpose((2, 3, 1, 0)),)), Packing((WinogradFilter((4, 4)), Reshape((36, 12, 20))))],
)
@pytest.mark.parametrize("dtype", ["f32", "f16"])
def test_the_promised_type_is_what_comes_out(packing: Packing, dtype: str) -> None:
    logical = TensorType(FILTER.shape, dtype)
    packed = packing.apply(values(logical))
    assert TensorType(packed.shape, dtype) == packing.type_of(logical)
    assert packed.dtype == logical.numpy_dtype
    assert packed.flags.c_contiguous


def test_a_scalar_stays_a_scalar() -> None:
    assert Packing().apply(np.array(2.5, np.float32)).shape == ()


def test_tiles_hold_the_filter_and_zeros() -> None:
    weights = values(FILTER)
    packed = TILED.apply(weights)
    matrix = packed.transpose(1, 3, 0, 2).reshape(108, 32)
    assert np.array_equal(matrix[:, :20].reshape(3, 3, 12, 20), weights.transpose(2, 3, 1, 0))
    assert not matrix[:, 20:].any()


def test_a_large_weight_is_not_allocated_to_learn_its_type() -> None:
    huge = TensorType((1 << 20, 1 << 16), "f32")
    assert Packing((Transpose((1, 0)), Reshape((1 << 16, 1 << 10, 1 << 10)))).type_of(huge).shape == (
        1 << 16,
        1 << 10,
        1 << 10,
    )


def test_equal_packings_are_equal_keys() -> None:
    same = Packing(tuple(TILED.steps))
    assert same == TILED
    assert {TILED: 1}[same] == 1
    assert Packing((Transpose((1, 0)),)) != Packing((Transpose((0, 1)),))


def test_rounding_is_to_the_nearest_number_and_ties_are_to_even() -> None:
    step = 2.0**-7
    exact = np.array([1, 1 + step / 2, 1 + 3 * step / 2, 1 + 0.51 * step, -1 - 0.49 * step, 0, np.inf], np.float32)
    rounded = Packing((Round("bf16"),)).apply(exact)
    assert rounded.dtype == np.dtype(ml_dtypes.bfloat16)
    assert rounded.astype(np.float32).tolist() == [1, 1, 1 + 2 * step, 1 + step, -1, 0, np.inf]


@pytest.mark.parametrize("dtype", ["bf16", "f16"])
def test_a_rounded_packing_promises_its_element_type(dtype: str) -> None:
    packing = Packing((*TILED.steps, Round(dtype)))
    packed = packing.apply(values(FILTER))
    assert packing.type_of(FILTER) == TensorType(packed.shape, dtype) == TensorType.of(packed.shape, packed.dtype)
    wide = TILED.apply(values(FILTER))
    np.testing.assert_allclose(packed.astype(np.float32), wide, rtol=2.0**-8)


def test_packings_that_round_differently_are_different_keys() -> None:
    assert Packing((Round("bf16"),)) != Packing((Round("f16"),)) != Packing()
    assert str(Packing((Round("bf16"),))) != str(Packing((Round("f16"),)))


def test_nor_is_one_that_is_padded_and_transformed() -> None:
    huge = TensorType((1 << 20, 1 << 16, 3, 3), "f32")
    packing = Packing((WinogradFilter((4, 2)), Reshape((24, 1 << 16, 1 << 20)), PadTo((24, 1 << 17, 1 << 20))))
    assert packing.type_of(huge) == TensorType((24, 1 << 17, 1 << 20), "f32")


def test_cutting_fills_up_with_zeros_and_reorders() -> None:
    weight = np.arange(1.0, 16.0, dtype=np.float32).reshape(5, 3)
    packed = Packing(cut(((3, 2), (2, 2)), (0, 2, 1, 3))).apply(weight)
    assert packed.shape == (3, 2, 2, 2)
    for (panel, block, row, column), number in np.ndenumerate(packed):
        place = (2 * panel + row, 2 * block + column)
        assert number == (weight[place] if place[0] < 5 and place[1] < 3 else 0.0)


def test_narrowing_rounds_or_quantises_by_channel() -> None:
    steps = cut(((2, 4), (8,)), (0, 1, 2))
    assert narrowed(steps, "bf16", 0, 4) == (*steps, Round("bf16"))
    assert narrowed(steps, "i8", 0, 4, (1,)) == (Quantise(0, 4, steps, (1,)),)


@pytest.mark.parametrize(
    ("number", "rounded"),
    [
        (1.0, 1.0),
        (1 + 2.0**-10, 1 + 2.0**-10),
        (1 + 2.0**-11, 1.0),
        (1 + 2.0**-10 + 2.0**-11, 1 + 2.0**-9),
        (1 + 2.0**-11 + 2.0**-23, 1 + 2.0**-10),
        (-(2 - 2.0**-23), -2.0),
        (3e38, 3.0008e38),
    ],
)
def test_numbers_are_rounded_to_the_nearest_of_tf32(number: float, rounded: float) -> None:
    (found,) = Packing((RoundMantissa(10),)).apply(np.array([number], np.float32))
    assert found == pytest.approx(rounded, rel=1e-4 if rounded > 1e30 else 0)


def test_what_cannot_be_rounded_stays_as_it_is() -> None:
    words = np.array([0x7F800000, 0xFF800000, 0x7FFFFFFF, 0x7F7FFFFF, 0xFF7FFFFF], np.uint32)
    found = Packing((RoundMantissa(10),)).apply(words.view(np.float32))
    assert found.view(np.uint32).tolist() == words.tolist()


def test_what_proves_pairs_of_neighbours_small_is_told_apart_by_their_order() -> None:
    weight = np.array([[127, 100, 1, 1]], np.float32)
    rows = (Reshape((1, 1, 1, 4)),)
    columns = (Reshape((1, 2, 2)), Transpose((0, 2, 1)), Reshape((1, 2, 1, 2)))
    packings = [Packing((QuantisePairs(0, panel, steps),)) for steps in (rows, columns) for panel in (1, 8)]
    assert [packing.is_exact(weight) for packing in packings] == [False, False, True, True]
    first, second, third, fourth = (packing.bounding for packing in packings)
    assert first == second != third == fourth
    assert Packing((Quantise(0, 8, rows),)).bounding is None


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
