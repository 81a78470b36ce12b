"""The plan of a file for several shapes is chosen by the inputs whose shapes differ between plans."""

from __future__ import annotations

import pytest

from sartor.errors import UsageError
from sartor.runtime.driver.signature import Signature, TensorSpec
from sartor.runtime.several.choice import fitting

_MASK = TensorSpec("mask", "float32", (8,))
_SIGNATURES = tuple(Signature("run", (TensorSpec("x", "float32", (size, 8)), _MASK), ()) for size in (1, 3))


def test_inputs_that_vary_choose() -> None:
    assert fitting(_SIGNATURES, {"x": (3, 8), "mask": (8,)}) is _SIGNATURES[1]
    assert fitting(_SIGNATURES, {}) is _SIGNATURES[0]


def test_a_wrong_shape_of_another_input_is_left_to_who_checks_arrays() -> None:
    assert fitting(_SIGNATURES, {"x": (3, 8), "mask": (9,)}) is _SIGNATURES[1]
    assert fitting(_SIGNATURES[:1], {"x": (3, 8), "mask": (9,)}) is _SIGNATURES[0]


def test_what_is_asked_has_to_be_there() -> None:
    with pytest.raises(UsageError, match=r"shapes x=2,8; it has plans for x=1,8; x=3,8"):
        fitting(_SIGNATURES, {"x": (2, 8), "mask": (9,)})
    with pytest.raises(UsageError, match=r"shapes x=3,8 mask=9; it has plans for x=1,8 mask=8; x=3,8 mask=8"):
        fitting(_SIGNATURES, {"x": (3, 8), "mask": (9,)}, asked=["mask"])
