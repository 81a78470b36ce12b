"""Fixtures of tests that take real models."""

from __future__ import annotations

import math
import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def model_folder() -> Path:
    """The real models: ``SARTOR_MODELS``, or ``../shared/models`` beside the repository."""
    default = Path(__file__).parents[3] / "shared" / "models"
    folder = Path(os.environ.get("SARTOR_MODELS", default))
    if not folder.is_dir():
        pytest.skip(f"the real models are not in {folder}; name their folder in SARTOR_MODELS")
    return folder


@pytest.fixture(autouse=True)
def nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests run side by side: that others compute meanwhile is no news, and no warning."""
    monkeypatch.setattr("sartor.tuning.workers.sharing._NOTICEABLE", math.inf)
