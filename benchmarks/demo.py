"""``make demo``: tune ResNet-50 on this machine, check it, and compare it with stock IREE and its competitors."""

from __future__ import annotations

import time
from pathlib import Path

from rich.console import Console

from benchmarks.compare import compare, table
from benchmarks.zoo import write

_DIRECTORY = Path("build/demo")
_NETWORK = "resnet50"
_THREADS = 1
_SECONDS = 10.0


def main() -> None:
    """Run the demo from the repository's root; the tuning database is a fresh one."""
    console = Console()
    _DIRECTORY.mkdir(parents=True, exist_ok=True)
    database = _DIRECTORY / "tuning.db"
    database.unlink(missing_ok=True)
    started = time.monotonic()
    last = ""

    def progress(step: str, done: int, total: int) -> None:
        nonlocal last
        if step != last:
            console.print(f"{time.monotonic() - started:6.1f} s  {step}")
            last = step

    model = write(_NETWORK, _DIRECTORY)
    artifact, rows = compare(model, _DIRECTORY, _THREADS, database, _SECONDS, progress)
    console.print(table(rows))
    console.print(f"{artifact.path}: {artifact.size / 1e6:.0f} MB, {len(artifact.plan.layers)} layers, one file")


if __name__ == "__main__":
    main()
