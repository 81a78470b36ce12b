"""Fixtures of tests of databases."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A database in folders that are not there yet."""
    return tmp_path / "cache" / "sartor" / "tuning.db"
