"""Networks for images of any size are right at whatever size they are called with."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sartor.runtime.session import Session
from tools.fuzz.open_images import check, sizes_of


@pytest.mark.parametrize("seed", [0])
def test_a_drawn_network_is_right_at_many_sizes(seed: int) -> None:
    found = check(seed, 30)
    assert not found.wrong
    assert found.right == 30


def test_a_wrong_row_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Session.run

    def off(self: Session, names: Any, feeds: Any) -> Any:
        (found,) = run(self, names, feeds)
        if feeds["x"].shape[2] % 2:
            found = found.copy()
            found[..., -1, :] += 0.01
        return [found]

    monkeypatch.setattr(Session, "run", off)
    found = check(0, 12)
    assert found.wrong
    assert all(int(each.split("x")[2]) % 2 for each in found.wrong)


def test_sizes_have_the_ends_and_are_drawn_by_their_seed() -> None:
    first, again = (sizes_of(np.random.default_rng(3), 40) for _ in range(2))
    assert first == again
    assert {(1, 24, 24), (8, 67, 67)} <= set(first)
