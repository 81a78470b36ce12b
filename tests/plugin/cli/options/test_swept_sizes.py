"""Which sizes of dimensions are timed in one run."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from sartor.cli.options import swept_sizes as options
from sartor.cli.options.swept_sizes import as_texts, swept_sizes
from sartor.errors import UsageError
from sartor.runtime.files.open_sizes import OpenSize, Place

_KNOWN = (
    OpenSize("batch", 1, 8, 1, (Place("ids", 0),)),
    OpenSize("length", 1, 512, 1, (Place("ids", 1),)),
    OpenSize("height", 224, 640, 32, (Place("image", 0),)),
)


def swept(monkeypatch: pytest.MonkeyPatch, *texts: str, fixed: tuple[str, ...] = (), known: int = 3) -> list[str]:
    monkeypatch.setattr(options, "open_module", lambda path: path)
    monkeypatch.setattr(options, "find_manifest", lambda _: SimpleNamespace(sizes=_KNOWN[:known]))
    return [" ".join(as_texts(sizes)) for sizes in swept_sizes(Path("m"), texts, fixed)]


def test_a_range_has_its_ends_and_octaves(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = [f"batch=2 length={1 << octave}" for octave in range(10)]
    assert swept(monkeypatch, "1..512", fixed=("batch=2",), known=2) == expected


def test_a_range_of_few_octaves_has_sizes_between_that_the_module_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    assert swept(monkeypatch, "height=224..640") == [f"height={size}" for size in (224, 288, 352, 480, 640)]
    assert swept(monkeypatch, "batch=3..4") == ["batch=3", "batch=4"]
    assert swept(monkeypatch, "batch=5..5") == ["batch=5"]


def test_lists_are_combined_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    assert swept(monkeypatch, "batch=4,1,4", "length=7,31") == [
        "batch=4 length=7",
        "batch=4 length=31",
        "batch=1 length=7",
        "batch=1 length=31",
    ]


@pytest.mark.parametrize(
    ("texts", "fixed", "known", "said"),
    [
        (("1..512",), (), 2, "names no dimension, and of these have no size yet: batch, length; write NAME=1..512"),
        (("7",), ("batch=1", "length=3"), 2, "have no size yet: none"),
        (("length=",), (), 2, "cannot be read"),
        (("length=1..",), (), 2, "cannot be read"),
        (("width=1..8",), (), 2, "--sizes names 'width'; the dimensions of any size are: batch, length"),
        (("length=0..8",), (), 2, "has the range 0..8, but the module takes 'length' from 1 to 512"),
        (("length=7,513",), (), 2, "--sizes gives 'length' the size 513, but the module takes 'length' from 1 to 512"),
        (("length=9..8",), (), 2, "has the range 9..8"),
        (("height=224..600",), (), 3, "a multiple of 32"),
        (("length=7", "length=8"), (), 2, "'length' has sizes twice"),
        (("length=7",), ("length=8",), 2, "'length' has sizes twice"),
        ((f"length={','.join(map(str, range(2, 103)))}",), (), 2, "101 combinations, at most 100"),
        (("length=7",), (), 0, "'m' has no dimension of any size"),
    ],
)
def test_what_cannot_be_timed_is_refused(
    texts: tuple[str, ...], fixed: tuple[str, ...], known: int, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UsageError, match=said.replace("..", r"\.\.")):
        swept(monkeypatch, *texts, fixed=fixed, known=known)
