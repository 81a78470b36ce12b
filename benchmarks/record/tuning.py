"""How long a compilation takes as a user starts it: the command, from nothing, and once more."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.record.results import Entry
from benchmarks.record.task import Found, Task

COLD, AGAIN = "cold", "once more"
_COMMAND = "from sartor.cli.main import compile_main; compile_main()"


def measure_tuning(task: Task) -> Found:
    """Run ``compile-to-vmfb`` with an empty database and an empty cache folder, and again with what it has left.

    A sample is the command's time by the clock, Python's start included. What is translated once is kept in the cache
    folder, so that one with anything in it would be no cold start. It is named absolutely: others are ignored.
    """
    seconds: dict[str, list[float]] = {COLD: [], AGAIN: []}
    facts: dict[str, dict[str, float | str]] = {COLD: {}, AGAIN: {}}
    for _ in range(task.effort.processes):
        with TemporaryDirectory(dir=task.directory.resolve()) as folder:
            for who, samples in seconds.items():
                taken, told = _compiled(task, Path(folder))
                if isinstance(told, str):
                    return {}, {who: told}
                samples.append(taken)
                facts[who] = {"network ms": ms} if (ms := told["measured_ms"]) is not None else {}
    entries = {who: Entry(tuple((sample,) for sample in samples), facts=facts[who]) for who, samples in seconds.items()}
    return entries, {}


def _compiled(task: Task, folder: Path) -> tuple[float, dict[str, float | None] | str]:
    """Seconds of the command, and what it prints, or why it failed."""
    command = [
        *(sys.executable, "-c", _COMMAND, str(task.model), "-o", str(folder / "module.vmfb"), "--json"),
        *("--threads", str(task.threads), "--tuning-db", str(folder / "tuning.db")),
    ]
    begin = time.perf_counter()
    done = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "XDG_CACHE_HOME": str(folder / "cache")}
    )
    taken = time.perf_counter() - begin
    if done.returncode:
        said = done.stderr.strip().splitlines() or ["it said nothing"]
        return taken, f"exit code {done.returncode}: {said[-1]}"
    return taken, json.loads(done.stdout)
