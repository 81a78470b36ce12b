"""Limits of the search are chosen on other families, among those that measure not many more variants."""

from __future__ import annotations

import pytest

from benchmarks.selection.settings import CHOSEN, KNOWN, OWN, Replay, best_setting, settings_around, summaries
from benchmarks.selection.settings import _chosen as chosen
from benchmarks.selection.summaries import settings_summary
from sartor.tuning.search.search_settings import INFORMED, SearchSettings

LOSSES = {
    OWN: {"vgg16": (100, 2.0), "vgg19": (100, 2.0), "lenet5": (10, 1.0)},
    "share 0.5": {"vgg16": (105, 0.0), "vgg19": (105, 0.0), "lenet5": (10, 3.0)},
    "rounds 3": {"vgg16": (300, 0.0), "vgg19": (300, 0.0), "lenet5": (30, 0.0)},
}
ROWS = [
    Replay(network, KNOWN, setting, 400, measured, loss)
    for setting, found in LOSSES.items()
    for network, (measured, loss) in found.items()
]


def test_one_number_differs_from_the_own_limits() -> None:
    found = settings_around(INFORMED)
    assert found[OWN] == INFORMED
    assert found["rounds 1"].rounds == 1
    assert "rounds 2" not in found
    assert found["near 1.1"].informed.near == 1.1
    assert found["shares none"].informed.shares == ()
    own = _numbers(INFORMED)
    for key, each in found.items():
        changed = {name for name, value in _numbers(each).items() if value != own[name]}
        assert changed == ({key.partition(" ")[0]} if key != OWN else set())
    assert not any(key.startswith(("shares", "families", "near")) for key in settings_around(SearchSettings()))


def _numbers(settings: SearchSettings) -> dict[str, object]:
    return {**vars(settings), "informed": None, **vars(settings.informed)}


def test_the_best_of_others_is_chosen_if_it_does_not_measure_many_more() -> None:
    assert best_setting(ROWS, KNOWN) == "share 0.5"
    assert best_setting([row for row in ROWS if row.network == "lenet5"], KNOWN) == OWN


def test_a_family_is_held_out_together() -> None:
    found = {each.network: each for each in chosen(ROWS)}
    assert {each.setting for each in found.values()} == {CHOSEN}
    assert {name: each.loss for name, each in found.items()} == {"vgg16": 2.0, "vgg19": 2.0, "lenet5": 3.0}


def test_what_is_shown_is_a_share_and_the_losses() -> None:
    shown = {setting: (share, mean, most) for setting, share, mean, most in summaries(ROWS, KNOWN)}
    assert shown[OWN] == pytest.approx((17.5, 5 / 3, 2.0))
    _, rows = settings_summary(ROWS)
    assert [row[:2] for row in rows] == [(KNOWN, each) for each in LOSSES]
