"""What a machine of CI is for is there, so that no job passes because all of its tests were skipped.

``SARTOR_TESTS_NEED`` names it: ``vulkan``, ``ptxas``, or both with a comma between. Elsewhere nothing is needed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

import pytest

from sartor.runtime.driver.device import is_available
from tools.cuda.assembler.ptx import assembler

_IS_THERE: Mapping[str, Callable[[], bool]] = {
    "vulkan": lambda: is_available("vulkan"),
    "ptxas": lambda: assembler() is not None,
}
_NEEDED = [part for part in os.environ.get("SARTOR_TESTS_NEED", "").split(",") if part]


@pytest.mark.vulkan
@pytest.mark.parametrize("name", _NEEDED)
def test_what_is_needed_is_there(name: str) -> None:
    assert _IS_THERE[name](), f"{name} is not there, and the tests that need it would be skipped"
