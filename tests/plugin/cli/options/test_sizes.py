"""Sizes that nobody gives, where a module takes any."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from sartor.cli.options import sizes
from sartor.cli.options.sizes import sized_inputs
from sartor.runtime.driver.signature import TensorSpec
from sartor.runtime.files.open_sizes import OpenSize, Place

_SPECS = [TensorSpec("ids", "int64", (1, None)), TensorSpec("image", "float32", (None, 3))]
_SPECS += [TensorSpec("drawn", "float32", (None,))]


@pytest.fixture(autouse=True)
def module(monkeypatch: pytest.MonkeyPatch) -> None:
    """A module of any length, of heights that are multiples of 32, and of as much noise as its caller likes."""
    known = (
        OpenSize("length", 1, 512, 1, (Place("ids", 1),)),
        OpenSize("height", 64, 640, 32, (Place("image", 0, -1),)),
        OpenSize("frames", 1, 40, 1, (Place("drawn", 0),)),
    )
    noise = (SimpleNamespace(name="drawn"),)
    monkeypatch.setattr(sizes, "open_module", lambda path: path)
    monkeypatch.setattr(sizes, "find_manifest", lambda _: SimpleNamespace(sizes=known, noise=noise))


@pytest.mark.parametrize(
    ("texts", "fills", "shapes"),
    [
        ((), False, [(1, None), (None, 3), (None,)]),
        (("length=7",), False, [(1, 7), (None, 3), (None,)]),
        ((), True, [(1, 22), (223, 3), (40,)]),
        (("length=7",), True, [(1, 7), (223, 3), (40,)]),
    ],
)
def test_sizes_that_are_not_given_are_filled(
    texts: tuple[str, ...], fills: bool, shapes: list[tuple[int | None, ...]]
) -> None:
    """The middle of 1 and 512 is 22, that of 64 and 640 is 202, or 224, of which the image has one row less."""
    assert [spec.shape for spec in sized_inputs(Path("m"), _SPECS, texts, fills=fills)] == shapes
