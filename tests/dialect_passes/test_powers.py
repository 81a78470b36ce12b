"""Numbers that are powers of sizes are known by their values, to the rounding of their type."""

from __future__ import annotations

import numpy as np
import pytest

from sartor.dialect_passes.opening.powers import POWERS, Power


@pytest.mark.parametrize("power", POWERS)
@pytest.mark.parametrize(("kind", "dtype"), [("f64", np.float64), ("f32", np.float32), ("f16", np.float16)])
def test_the_size_of_a_power_is_found(power: Power, kind: str, dtype: type[np.floating]) -> None:
    for size in (1, 2, 31, 64, 384):
        root = float(size) ** (1 / 2**power.roots)
        assert power.size_of(float(dtype(1 / root if power.is_inverse else root)), kind) == size


@pytest.mark.parametrize("number", [0.0, -0.5, 0.3, 0.7071, 1e-30, 1e-300])
def test_other_numbers_are_powers_of_no_size(number: float) -> None:
    assert all(power.size_of(number, "f32") is None for power in POWERS if power.is_inverse)
