"""The workflow file chooses tests for Vulkan by their marker, so every test that uses a device has it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
# What only tests for Vulkan do: they open the device, ask whether it is there, or name the module that marks them.
_USES = re.compile(r'open_device\("vulkan"\)|(is_available|supports_device)\("vulkan"\)', re.IGNORECASE)
_MARKED = re.compile(r"mark\.vulkan\b|\bneeds_vulkan\b|\bvulkan: str\b")


def test_the_workflow_chooses_by_the_marker() -> None:
    workflow = (ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8")
    assert "pytest -m vulkan" in workflow
    assert "pytest -k" not in workflow


def test_every_test_of_a_vulkan_device_is_marked() -> None:
    sources = {path: path.read_text(encoding="utf-8") for path in sorted((ROOT / "tests").rglob("test_*.py"))}
    using = {path for path, text in sources.items() if _USES.search(text) and path != Path(__file__)}
    assert len(using) > 3
    assert {str(path) for path in using if not _MARKED.search(sources[path])} == set()


def test_tests_that_ask_for_the_device_are_marked(request: pytest.FixtureRequest) -> None:
    """The hook in conftest marks them, which the marker on the fixture's own users shows."""
    asking = [item for item in request.session.items if "vulkan" in getattr(item, "fixturenames", ())]
    assert all(item.get_closest_marker("vulkan") for item in asking)
