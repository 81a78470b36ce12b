"""Each rewrite that exists because of IREE has a small model that it changes, and by which IREE can be asked for it."""

from __future__ import annotations

import subprocess

import numpy as np
import pytest

from sartor.onnx_model.preparing.prepare import LOWER, MODERNISE, NORMALISE, SIMPLIFY, prepare
from tools.workarounds import __main__ as command
from tools.workarounds.reproducers import REPRODUCERS, Reproducer, read_reproducers

FOR_SPEED = frozenset({"split_groups"})
"""Rewrites of what IREE computes right, and slowly."""


def test_each_rewrite_that_names_a_version_of_iree_has_a_model() -> None:
    rewrites = {rewrite for group in (NORMALISE, MODERNISE, SIMPLIFY, LOWER) for rewrite in group}
    named = {rewrite.__name__ for rewrite in rewrites if "IREE 3." in (rewrite.__doc__ or "")}
    assert named - FOR_SPEED == {*REPRODUCERS}


@pytest.mark.parametrize("name", REPRODUCERS)
def test_a_rewrite_changes_its_model_unless_it_is_left_out(name: str) -> None:
    model = REPRODUCERS[name].model()
    assert name in {change.rewrite for change in prepare(model).changes}
    assert name not in {change.rewrite for change in prepare(model, without=(name,)).changes}


def test_values_are_given_or_drawn() -> None:
    graph = "(float[2, 2] x, uint8[3] w) => (float[2, 2] y) { y = Relu(x) }"
    (reproducer,) = read_reproducers(f"# A comment.\n\nrelu 18\n{graph}\nx: nan 2").values()
    feeds = reproducer.feeds()
    np.testing.assert_array_equal(feeds["x"], np.array([[np.nan, 2], [np.nan, 2]], np.float32))
    assert feeds["w"].dtype == np.uint8
    np.testing.assert_array_equal(feeds["w"], reproducer.feeds()["w"])


@pytest.mark.parametrize(
    ("right", "without", "code", "is_needed"),
    [
        ("right", "wrong: 1 in place of 2", 0, True),
        ("right", "", -6, True),
        ("right", "right", 0, False),
        ("refused: by all", "refused: by all", 0, False),
    ],
)
def test_a_rewrite_is_needed_if_its_model_is_wrong_without_it_alone(
    right: str, without: str, code: int, is_needed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = subprocess.CompletedProcess([], code, f"{right}\n{without}".strip(), "")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: done)
    assert command.main(["crop_pads"]) == (not is_needed)


def test_a_wrong_result_is_told_apart_from_a_right_one() -> None:
    gelu = REPRODUCERS["written_tanh_gelu"]
    assert command.shown(gelu, ()) == "right"
    assert command.shown(gelu, ("written_tanh_gelu",)).startswith("wrong: ")
    # One in 16 million: integers are right or wrong, whatever rounding floats are allowed.
    assert command.shown(REPRODUCERS["exact_signs"], ("exact_signs",)) == "wrong: -16777216 in place of -16777217"
    negative_pads = REPRODUCERS["crop_pads"]
    assert isinstance(negative_pads, Reproducer)
    assert command.shown(negative_pads, ("crop_pads",)).startswith("refused: ")
