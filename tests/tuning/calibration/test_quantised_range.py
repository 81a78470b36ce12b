"""8-bit forms: zero is exact, everything in range is within half a step, and no range has a step of zero."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sartor.tuning.calibration.quantised_range import QuantisedRange

NUMBERS = st.floats(-(2.0**100), 2.0**100, width=32, allow_subnormal=False)
DTYPES = st.sampled_from(["int8", "uint8"])


@given(NUMBERS, NUMBERS, DTYPES, st.booleans())
def test_values_in_range_are_within_half_a_step(one: float, other: float, dtype: str, symmetric: bool) -> None:
    low, high = sorted((one, other))
    form = QuantisedRange.of(low, high, dtype, symmetric=symmetric)
    assert form.scale > 0
    assert form.scale == np.float32(form.scale)
    values = np.linspace(low, high, 17)
    # The zero point is rounded too, by which the whole range moves; at its ends that clips up to half a step more.
    assert np.all(np.abs(form.round(values) - values) <= form.scale * 1.001)
    assert form.round(np.zeros(1))[0] == 0


@given(NUMBERS, NUMBERS, st.booleans())
def test_both_types_hold_the_same_numbers(one: float, other: float, symmetric: bool) -> None:
    low, high = sorted((one, other))
    signed, unsigned = (QuantisedRange.of(low, high, dtype, symmetric=symmetric) for dtype in ("int8", "uint8"))
    assert signed.scale == unsigned.scale
    if symmetric:
        assert (signed.zero_point, unsigned.zero_point) == (0, 128)
    else:
        assert abs(unsigned.zero_point - signed.zero_point - 128) <= 1


def test_known_forms() -> None:
    assert QuantisedRange.of(0.0, 255.0, "uint8") == QuantisedRange(1.0, 0, "uint8")
    assert QuantisedRange.of(-1.0, 254.0, "uint8") == QuantisedRange(1.0, 1, "uint8")
    assert QuantisedRange.of(-127.0, 64.0, "int8", symmetric=True) == QuantisedRange(1.0, 0, "int8")
    assert QuantisedRange.of(-127.0, 64.0, "int8", symmetric=True).limits == (-128.0, 127.0)


@pytest.mark.parametrize("constant", [0.0, 3.0, -0.001, 1e-42])
@pytest.mark.parametrize("symmetric", [False, True])
def test_constant_tensors_are_nearly_exact(constant: float, symmetric: bool) -> None:
    form = QuantisedRange.of(constant, constant, symmetric=symmetric)
    assert form.round(np.array([constant]))[0] == pytest.approx(constant, rel=1e-6, abs=1e-38)


def test_halves_go_to_the_even_neighbour_and_what_is_outside_to_the_end() -> None:
    form = QuantisedRange(1.0, 0, "int8")
    assert form.round(np.array([0.5, 1.5, 2.5, 300.0, -300.0])).tolist() == [0, 2, 2, 127, -128]
