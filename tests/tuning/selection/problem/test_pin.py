"""What the text of a pin says."""

from __future__ import annotations

import pytest

from sartor.errors import UsageError
from sartor.tuning.selection.problem.pin import Pin


@pytest.mark.parametrize("text", ["conv1", "=x", "conv1=", ""])
def test_a_malformed_pin_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is no pin"):
        Pin.parse(text)


def test_a_pin_splits_at_the_first_equals_sign() -> None:
    assert Pin.parse("conv*=*tiled{depth=4}") == Pin("conv*", "*tiled{depth=4}")
