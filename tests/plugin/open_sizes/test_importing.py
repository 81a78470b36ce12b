"""Imports with several sizes are compared with each other, so all of them are simplified, or none."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from sartor.config import CompileConfig
from sartor.open_sizes import importing
from sartor.open_sizes.symbols import OpenDims
from sartor.policies import ImportPolicy
from sartor.settings.size_range import SizeRange

DIMS = OpenDims({"x": ("n", 4)}, {"x": (SizeRange(1, 8), 4)})


@pytest.mark.parametrize(
    ("simplified", "imports"),
    [({8: True, 7: True}, 1), ({8: False, 7: False}, 1), ({8: True, 7: False}, 2), ({8: False, 7: True}, 2)],
)
def test_all_sizes_are_simplified_or_none(
    simplified: dict[int, bool],
    imports: int,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
) -> None:
    asked = list[list[bool]]()

    def imported(_: Path, settings: list[tuple[ImportPolicy, Path]], *__: object) -> list[Any]:
        asked.append([policy.simplifies for policy, _ in settings])
        assert len({folder for _, folder in settings}) == len(settings)
        return [Mock(is_simplified=policy.simplifies and simplified[policy.shapes["x"][0]]) for policy, _ in settings]

    monkeypatch.setattr(importing, "import_networks", imported)
    with caplog.at_level(logging.WARNING):
        bench = Mock(directory=tmp_path, imported=[])
        found = importing._alike(Path("m"), [{"n": 8}, {"n": 7}], DIMS, CompileConfig(), bench)
    assert len({each.is_simplified for each in found}) == 1
    # What is kept of any of them is forgotten if no file is right.
    assert len(bench.imported) == 2 * imports
    assert all(each in bench.imported for each in found)
    assert asked == [[True, True], [False, False]][:imports]
    assert ("imported again" in caplog.text) == (imports == 2)
