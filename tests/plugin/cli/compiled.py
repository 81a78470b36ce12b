"""A network that was compiled for tests of the command line."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Compiled:
    """LeNet-5, compiled once for all tests."""

    model: Path
    module: Path
    plan: Path
    database: Path
    summary: dict[str, Any]
    progress: str
    report: Path
