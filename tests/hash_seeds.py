"""What a script prints under different hash seeds, on which no result may depend."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SEEDS = ("1", "2")


def printed_under_hash_seeds(script: str, *arguments: str, folder: Path | None = None) -> list[str]:
    """Standard output of ``python -c script`` for each of ``SEEDS``, run in ``folder`` or where the tests run."""
    return [
        subprocess.run(
            [sys.executable, "-c", script, *arguments],
            env=os.environ | {"PYTHONHASHSEED": seed},
            cwd=folder,
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in SEEDS
    ]
