"""Devices that tests need: a driver for Vulkan, which not every machine has."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec

import pytest

from sartor.runtime.driver.device import is_available

Given = ParamSpec("Given")
Test = Callable[Given, None]


def needs_vulkan(test: Test[Given]) -> Test[Given]:
    """Mark a test that runs code on a Vulkan device: it is chosen by ``-m vulkan``, and skipped without a driver."""
    skip = pytest.mark.skipif(not is_available("vulkan"), reason="this machine has no Vulkan driver")
    marked: Test[Given] = pytest.mark.vulkan(skip(test))
    return marked
