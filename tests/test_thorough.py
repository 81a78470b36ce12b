"""The list of tests for which CI has no time names tests that there are."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.thorough import TESTS

_TESTS = Path(__file__).parent


@pytest.mark.parametrize("name", TESTS)
def test_the_test_is_there(name: str) -> None:
    file, _, test = name.partition("::")
    assert f"def {test.partition('[')[0]}(" in (_TESTS / file).read_text(encoding="utf-8")
